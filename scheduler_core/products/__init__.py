"""The table of Ascend products, its columns, and look-up in it."""
