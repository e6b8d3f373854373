/* The structures and functions of libdcmi that the agent uses, written from their
 * description: names, types and order of the fields. What their layout must be is
 * asserted in dcmi.c, against sizes and offsets that were worked out beforehand. */
#ifndef FAKE_DCMI_H
#define FAKE_DCMI_H

#define TEXT_LEN 32

struct dcmi_chip_info {
  unsigned char chip_type[TEXT_LEN];
  unsigned char chip_name[TEXT_LEN];
  unsigned char chip_ver[TEXT_LEN];
  unsigned int aicore_cnt;
};

struct dcmi_chip_info_v2 {
  unsigned char chip_type[TEXT_LEN];
  unsigned char chip_name[TEXT_LEN];
  unsigned char chip_ver[TEXT_LEN];
  unsigned int aicore_cnt;
  unsigned char npu_name[TEXT_LEN];
};

struct dcmi_board_info {
  unsigned int board_id;
  unsigned int pcb_id;
  unsigned int bom_id;
  unsigned int slot_id;
};

enum dcmi_ip_addr_type { DCMI_IPADDR_TYPE_V4 = 0, DCMI_IPADDR_TYPE_V6 = 1 };

struct dcmi_ip_addr {
  union {
    unsigned char ip6[16];
    unsigned char ip4[4];
  } u_addr;
  enum dcmi_ip_addr_type ip_type;
};

struct dcmi_hbm_info {
  unsigned long long memory_size;
  unsigned int freq;
  unsigned long long memory_usage;
  int temp;
  unsigned int bandwith_util_rate;
};

struct dcmi_spod_info {
  unsigned int sdid;
  unsigned int scale_type;
  unsigned int super_pod_id;
  unsigned int server_id;
  unsigned int chassis_id;
  unsigned int super_pod_type;
  unsigned int reserve[6];
};

struct dcmi_base_resource {
  unsigned long long token;
  unsigned long long token_max;
  unsigned long long task_timeout;
  unsigned int vfg_id;
  unsigned char vip_mode;
  unsigned char reserved[31];
};

struct dcmi_computing_resource {
  float aic;
  float aiv;
  unsigned short queues[8];
  unsigned long long memory_size;
  unsigned int ids[4];
  unsigned short cpus[5];
  unsigned int vdev_aicore_utilization;
  unsigned long long vdev_memory_total;
  unsigned long long vdev_memory_free;
  unsigned char reserved[12];
};

struct dcmi_media_resource {
  float units[6];
  unsigned char reserved[32];
};

struct dcmi_vdev_query_info {
  char name[16];
  unsigned int status;
  unsigned int is_container_used;
  unsigned int vfid;
  unsigned int vfg_id;
  unsigned long long container_id;
  struct dcmi_base_resource base;
  struct dcmi_computing_resource computing;
  struct dcmi_media_resource media;
};

struct dcmi_vdev_query_stru {
  unsigned int vdev_id;
  struct dcmi_vdev_query_info query_info;
};

struct dcmi_soc_total_resource {
  unsigned int vdev_num;
  unsigned int vdev_id[32];
  unsigned int vfg_num;
  unsigned int vfg_bitmap;
  struct dcmi_base_resource base;
  struct dcmi_computing_resource computing;
  struct dcmi_media_resource media;
};

struct dcmi_proc_mem_info {
  int proc_id;
  unsigned long proc_mem_usage;
};

struct dcmi_dms_fault_event {
  unsigned int event_id;
  unsigned short deviceid;
  unsigned char node_type;
  unsigned char node_id;
  unsigned char sub_node_type;
  unsigned char sub_node_id;
  unsigned char severity;
  unsigned char assertion;
  int event_serial_num;
  int notify_serial_num;
  unsigned long long alarm_raised_time;
  char event_name[256];
  char additional_info[32];
  unsigned char resv[32];
};

enum dcmi_event_type { DCMI_DMS_FAULT_EVENT = 0 };

struct dcmi_event {
  enum dcmi_event_type type;
  union {
    struct dcmi_dms_fault_event dms_event;
  } event_t;
};

struct dcmi_event_filter {
  unsigned long long filter_flag;
  unsigned int event_id;
  unsigned char severity;
  unsigned char node_type;
  unsigned char resv[32];
};

typedef void (*dcmi_fault_event_callback)(struct dcmi_event *event);

#endif
