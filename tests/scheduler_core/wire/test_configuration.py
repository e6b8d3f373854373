from scheduler_core.wire import configuration


def test_the_text_is_what_training_programs_read_today() -> None:
    text = configuration.render("train-0", "4f0c-uid", "10.0.0.5", (10, 2))

    assert text == (
        '{"pod_name":"train-0","server_id":"4f0c-uid","host_ip":"10.0.0.5",'
        '"super_pod_id":-2,"devices":['
        '{"device_id":"2","device_ip":"-1","super_device_id":"-2"},'
        '{"device_id":"10","device_ip":"-1","super_device_id":"-2"}],'
        '"rack_id":0,"server_index":"-2","server_ip":"10.0.0.5"}'
    )
