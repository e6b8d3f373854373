/* Says where a compiler puts each field: "struct size" and "struct.field offset". */
#include <stddef.h>
#include <stdio.h>

#include "dcmi.h"

#define SIZE(s) printf(#s " %zu\n", sizeof(struct s))
#define AT(s, f) printf(#s "." #f " %zu\n", offsetof(struct s, f))

int main(void) {
  SIZE(dcmi_chip_info_v2);
  AT(dcmi_chip_info_v2, chip_type);
  AT(dcmi_chip_info_v2, chip_name);
  AT(dcmi_chip_info_v2, chip_ver);
  AT(dcmi_chip_info_v2, aicore_cnt);
  AT(dcmi_chip_info_v2, npu_name);
  SIZE(dcmi_board_info);
  AT(dcmi_board_info, board_id);
  AT(dcmi_board_info, pcb_id);
  AT(dcmi_board_info, bom_id);
  AT(dcmi_board_info, slot_id);
  SIZE(dcmi_ip_addr);
  AT(dcmi_ip_addr, ip_type);
  SIZE(dcmi_hbm_info);
  AT(dcmi_hbm_info, memory_size);
  AT(dcmi_hbm_info, freq);
  AT(dcmi_hbm_info, memory_usage);
  AT(dcmi_hbm_info, temp);
  AT(dcmi_hbm_info, bandwith_util_rate);
  SIZE(dcmi_spod_info);
  AT(dcmi_spod_info, sdid);
  AT(dcmi_spod_info, scale_type);
  AT(dcmi_spod_info, super_pod_id);
  AT(dcmi_spod_info, server_id);
  AT(dcmi_spod_info, chassis_id);
  AT(dcmi_spod_info, super_pod_type);
  AT(dcmi_spod_info, reserve);
  SIZE(dcmi_vdev_query_info);
  AT(dcmi_vdev_query_info, name);
  AT(dcmi_vdev_query_info, status);
  AT(dcmi_vdev_query_info, is_container_used);
  AT(dcmi_vdev_query_info, vfid);
  AT(dcmi_vdev_query_info, vfg_id);
  AT(dcmi_vdev_query_info, container_id);
  AT(dcmi_vdev_query_info, base);
  AT(dcmi_vdev_query_info, computing);
  AT(dcmi_vdev_query_info, media);
  SIZE(dcmi_vdev_query_stru);
  AT(dcmi_vdev_query_stru, vdev_id);
  AT(dcmi_vdev_query_stru, query_info);
  SIZE(dcmi_soc_total_resource);
  AT(dcmi_soc_total_resource, vdev_num);
  AT(dcmi_soc_total_resource, vdev_id);
  AT(dcmi_soc_total_resource, vfg_num);
  AT(dcmi_soc_total_resource, vfg_bitmap);
  AT(dcmi_soc_total_resource, base);
  AT(dcmi_soc_total_resource, computing);
  AT(dcmi_soc_total_resource, media);
  SIZE(dcmi_proc_mem_info);
  AT(dcmi_proc_mem_info, proc_id);
  AT(dcmi_proc_mem_info, proc_mem_usage);
  SIZE(dcmi_dms_fault_event);
  AT(dcmi_dms_fault_event, event_id);
  AT(dcmi_dms_fault_event, deviceid);
  AT(dcmi_dms_fault_event, node_type);
  AT(dcmi_dms_fault_event, node_id);
  AT(dcmi_dms_fault_event, sub_node_type);
  AT(dcmi_dms_fault_event, sub_node_id);
  AT(dcmi_dms_fault_event, severity);
  AT(dcmi_dms_fault_event, assertion);
  AT(dcmi_dms_fault_event, event_serial_num);
  AT(dcmi_dms_fault_event, notify_serial_num);
  AT(dcmi_dms_fault_event, alarm_raised_time);
  AT(dcmi_dms_fault_event, event_name);
  AT(dcmi_dms_fault_event, additional_info);
  AT(dcmi_dms_fault_event, resv);
  SIZE(dcmi_event);
  AT(dcmi_event, type);
  AT(dcmi_event, event_t);
  SIZE(dcmi_event_filter);
  AT(dcmi_event_filter, filter_flag);
  AT(dcmi_event_filter, event_id);
  AT(dcmi_event_filter, severity);
  AT(dcmi_event_filter, node_type);
  AT(dcmi_event_filter, resv);
  return 0;
}
