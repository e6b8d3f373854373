/* A libdcmi.so without hardware, for tests: it reads what to say from the file that
 * FAKE_DCMI names, anew whenever it is another, so that a test edits it while it is
 * in use.
 *
 *   version 24.1.rc2
 *   unnamed N                          N cards more in the list, each with the id -1
 *   once                               the list is that of dcmi_init
 *   chip CARD DEVICE KEY=VALUE …       phy logic name board cores type unit ip ip6
 *                                      memory cpus sdid pod server network ready
 *                                      virtual=100:vir04_3c,101:vir02
 *                                      codes=80E01801,… pids=11,12 count=N
 *                                      pids=@FILE: those of FILE that still live
 *   answer FUNCTION CARD DEVICE CODE   return CODE and write nothing; -1 is any
 *   hang FUNCTION CARD DEVICE          never return
 *   slow FUNCTION CARD DEVICE MS       return after so many milliseconds
 *   crash FUNCTION CARD DEVICE         a segmentation fault
 *   number FUNCTION CARD DEVICE N      say N where a count or an id is asked for
 *
 * Compiled with -DWITHOUT_V2 it is an older one, without dcmi_get_device_chip_info_v2.
 *
 * Events are lines "LOGIC_ID CODE SEVERITY ASSERTION" appended to the file of that
 * name with ".events" behind it; who subscribes is told of those that come later. */
#include <arpa/inet.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dcmi.h"

/* On a 64-bit Linux, worked out beforehand. */
_Static_assert(sizeof(struct dcmi_dms_fault_event) == 352, "fault event");
_Static_assert(offsetof(struct dcmi_dms_fault_event, alarm_raised_time) == 24, "time");
_Static_assert(offsetof(struct dcmi_dms_fault_event, event_name) == 32, "name");
_Static_assert(sizeof(struct dcmi_event) == 360, "event");
_Static_assert(offsetof(struct dcmi_event, event_t) == 8, "payload");
_Static_assert(sizeof(struct dcmi_event_filter) == 48, "filter");
_Static_assert(sizeof(struct dcmi_ip_addr) == 20, "address");
_Static_assert(sizeof(struct dcmi_hbm_info) == 32, "memory");
_Static_assert(sizeof(struct dcmi_spod_info) == 48, "SuperPoD");
_Static_assert(sizeof(unsigned long) == 8, "unsigned long");

#define OK 0
#define NOT_EXIST (-8008)
#define NOT_READY (-8012)
#define NOT_SUPPORTED (-8255)
#define ANY (-1)
#define LINE 4096

static char said[1 << 16]; /* behind a line feed, so that each line has one before it */
static size_t said_size;
static int misbehaves;    /* whether it says anything but what chips there are */
static struct stat known; /* the file of which this is; without an inode if too young */

/* Two edits within one tick of a file system's clock may look alike. */
static int is_young(const struct stat *file) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec - file->st_ctim.tv_sec < 2;
}

static int is_known(const struct stat *file) {
  return file->st_ino == known.st_ino && file->st_size == known.st_size &&
         file->st_ctim.tv_sec == known.st_ctim.tv_sec &&
         file->st_ctim.tv_nsec == known.st_ctim.tv_nsec;
}

/* Read the script if it is another: at each call, but a driver costs little. */
static void look(void) {
  const char *path = getenv("FAKE_DCMI");
  struct stat found;
  if (path && !stat(path, &found) && is_known(&found)) return;
  FILE *file = path ? fopen(path, "r") : NULL;
  said_size = 0;
  said[0] = 0;
  known.st_ino = 0;
  if (!file) return;
  fstat(fileno(file), &known);
  if (is_young(&known)) known.st_ino = 0;
  said[0] = '\n';
  said_size = 1 + fread(said + 1, 1, sizeof said - 1, file);
  if (said_size == sizeof said) abort(); /* more than was ever written */
  said[said_size] = 0;
  misbehaves = strstr(said, "\ncrash ") || strstr(said, "\nslow ") || strstr(said, "\nhang ") ||
               strstr(said, "\nanswer ") || strstr(said, "\nnumber ");
  fclose(file);
}

static FILE *script(void) {
  return said_size ? fmemopen(said, said_size, "r") : NULL;
}

/* Whether the script has a line for this call; its number goes to *number. */
static int told(const char *verb, const char *function, int card, int device,
                long *number) {
  char line[LINE], word[64], of[128];
  int on_card, on_device, found = 0;
  FILE *file = misbehaves ? script() : NULL;
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file)) {
    long value = 0;
    if (sscanf(line, "%63s %127s %d %d %ld", word, of, &on_card, &on_device, &value) >= 4 &&
        !strcmp(word, verb) && !strcmp(of, function) &&
        (on_card == ANY || on_card == card) && (on_device == ANY || on_device == device)) {
      found = 1;
      if (number) *number = value;
    }
  }
  fclose(file);
  return found;
}

static int misbehave(const char *function, int card, int device) {
  long code = OK;
  look();
  if (told("crash", function, card, device, NULL)) raise(SIGSEGV);
  for (; told("hang", function, card, device, NULL); look()) pause();
  long slow_ms = 0;
  if (told("slow", function, card, device, &slow_ms)) usleep((unsigned)slow_ms * 1000);
  told("answer", function, card, device, &code);
  return (int)code;
}

#define BEGIN(card, device)                                        \
  do {                                                             \
    int refused_ = misbehave(__func__, (card), (device));          \
    if (refused_) return refused_;                                 \
  } while (0)

/* The text behind " key=" in the line of a chip; 0 when there is no such chip. */
static int chip(int card, int device, const char *key, char *text, size_t size) {
  char line[LINE], wanted[64];
  text[0] = 0;
  snprintf(wanted, sizeof wanted, "\nchip %d %d ", card, device);
  const char *found = strstr(said, wanted);
  if (!found) return 0;
  snprintf(line, sizeof line, "%.*s", (int)strcspn(found + 1, "\n"), found + 1);
  snprintf(wanted, sizeof wanted, " %s=", key);
  const char *at = strstr(line, wanted);
  if (!at) return 1;
  at += strlen(wanted);
  /* a blank within a value is written as a + */
  snprintf(text, size, "%.*s", (int)strcspn(at, " "), at);
  for (char *c = text; *c; c++)
    if (*c == '+') *c = ' ';
  return 1;
}

static int number(int card, int device, const char *key, long *value) {
  char text[LINE];
  if (!chip(card, device, key, text, sizeof text)) return NOT_EXIST;
  if (!text[0]) return NOT_SUPPORTED;
  *value = strtol(text, NULL, 0);
  return OK;
}

static int at_init[64], at_init_count = -1; /* with "once": the list since dcmi_init */

static int list_cards(int *list, int length) {
  char line[LINE];
  int card, device, more = 0, found = 0;
  FILE *file = script();
  while (file && fgets(line, sizeof line, file)) {
    sscanf(line, "unnamed %d", &more);
    if (sscanf(line, "chip %d %d", &card, &device) != 2 || found == length) continue;
    if (!found || list[found - 1] != card) list[found++] = card;
  }
  if (file) fclose(file);
  for (; more > 0 && found < length; more--) list[found++] = -1;
  return found;
}

int dcmi_init(void) {
  BEGIN(ANY, ANY);
  if (strstr(said, "\nonce")) at_init_count = list_cards(at_init, 64);
  return OK;
}

int dcmi_get_dcmi_version(char *version, int size) {
  char line[LINE], found[64] = "";
  BEGIN(ANY, ANY);
  FILE *file = script();
  while (file && fgets(line, sizeof line, file)) sscanf(line, "version %63s", found);
  if (file) fclose(file);
  snprintf(version, (size_t)size, "%s", found);
  return OK;
}

int dcmi_get_card_list(int *count, int *list, int length) {
  long lie;
  BEGIN(ANY, ANY);
  int found = at_init_count < 0 ? list_cards(list, length) : at_init_count;
  if (at_init_count >= 0) memcpy(list, at_init, sizeof(int) * (size_t)found);
  *count = told("number", __func__, ANY, ANY, &lie) ? (int)lie : found;
  return OK;
}

int dcmi_get_device_num_in_card(int card, int *count) {
  char text[LINE];
  long lie;
  BEGIN(card, 0);
  for (*count = 0; chip(card, *count, "phy", text, sizeof text); ++*count) continue;
  if (told("number", __func__, card, 0, &lie)) *count = (int)lie;
  return OK;
}

int dcmi_get_device_type(int card, int device, int *type) {
  long unit = 0;
  BEGIN(card, device);
  number(card, device, "unit", &unit);
  *type = (int)unit;
  return OK;
}

int dcmi_get_device_logic_id(int *logic_id, int card, int device) {
  long found;
  BEGIN(card, device);
  int code = number(card, device, "logic", &found);
  if (code == OK) *logic_id = (int)found;
  return code;
}

int dcmi_get_device_phyid_from_logicid(unsigned int logic_id, unsigned int *physical) {
  char line[LINE];
  int card, device;
  FILE *file = script();
  int code = NOT_EXIST;
  while (file && code && fgets(line, sizeof line, file)) {
    long logic, phy;
    if (sscanf(line, "chip %d %d", &card, &device) != 2) continue;
    if (number(card, device, "logic", &logic) || (unsigned)logic != logic_id) continue;
    code = misbehave(__func__, card, device);
    if (!code) code = number(card, device, "phy", &phy);
    if (!code) *physical = (unsigned)phy;
    if (code) break;
  }
  if (file) fclose(file);
  return code;
}

int dcmi_get_device_health(int card, int device, unsigned int *health) {
  long ready = 1;
  BEGIN(card, device);
  int code = number(card, device, "ready", &ready);
  if (code == NOT_EXIST) return code;
  *health = 0;
  return ready ? OK : NOT_READY;
}

int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *list,
                                 unsigned int length) {
  char text[LINE], *rest = NULL;
  BEGIN(card, device);
  if (!chip(card, device, "codes", text, sizeof text)) return NOT_EXIST;
  *count = 0;
  for (char *c = strtok_r(text, ",", &rest); c && (unsigned)*count < length;
       c = strtok_r(NULL, ",", &rest))
    list[(*count)++] = (unsigned)strtoul(c, NULL, 16);
  return OK;
}

#ifdef WITHOUT_V2
int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *info) {
#else
int dcmi_get_device_chip_info_v2(int card, int device, struct dcmi_chip_info_v2 *info) {
#endif
  char text[LINE];
  long cores = 0, lie;
  BEGIN(card, device);
  if (!chip(card, device, "name", text, sizeof text)) return NOT_EXIST;
  memset(info, 0, sizeof *info);
  memcpy(info->chip_type, "Ascend", 6);
  snprintf((char *)info->chip_name, TEXT_LEN, "%.31s", text);
#ifndef WITHOUT_V2
  snprintf((char *)info->npu_name, TEXT_LEN, "%.31s", text);
#endif
  number(card, device, "cores", &cores);
  info->aicore_cnt = (unsigned)(told("number", __func__, card, device, &lie) ? lie : cores);
  return OK;
}

int dcmi_get_device_board_info(int card, int device, struct dcmi_board_info *info) {
  long board;
  BEGIN(card, device);
  int code = number(card, device, "board", &board);
  if (code) return code;
  memset(info, 0, sizeof *info);
  info->board_id = (unsigned)board;
  return OK;
}

int dcmi_get_product_type(int card, int device, char *type, int size) {
  char text[LINE];
  BEGIN(card, device);
  if (!chip(card, device, "type", text, sizeof text)) return NOT_EXIST;
  if (!text[0]) return NOT_SUPPORTED;
  snprintf(type, (size_t)size, "%s", text);
  return OK;
}

int dcmi_get_device_network_health(int card, int device, int *result) {
  long found;
  BEGIN(card, device);
  int code = number(card, device, "network", &found);
  if (!code) *result = (int)found;
  return code;
}

/* Put the file that `text` names behind its '@' in the place of the name. */
static void take_file(char *text, size_t size) {
  FILE *file = fopen(text + 1, "r");
  size_t count = file ? fread(text, 1, size - 1, file) : 0;
  text[count] = 0;
  if (file) fclose(file);
}

static int lives(const char *pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d", atoi(pid));
  return !access(path, F_OK);
}

int dcmi_get_device_resource_info(int card, int device, struct dcmi_proc_mem_info *list,
                                  int *count) {
  char text[LINE], *rest = NULL;
  long lie;
  int room = *count;
  BEGIN(card, device);
  if (!chip(card, device, "pids", text, sizeof text)) return NOT_EXIST;
  *count = 0;
  int must_live = text[0] == '@';
  if (must_live) take_file(text, sizeof text);
  for (char *c = strtok_r(text, ",", &rest); c && *count < room;
       c = strtok_r(NULL, ",", &rest)) {
    if (must_live && !lives(c)) continue;
    list[*count].proc_id = atoi(c);
    list[(*count)++].proc_mem_usage = 1UL << 20;
  }
  if (told("number", __func__, card, device, &lie)) *count = (int)lie;
  return OK;
}

int dcmi_get_device_ip(int card, int device, int port_type, int port,
                       struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask) {
  char text[LINE];
  BEGIN(card, device);
  if (port_type != 1 || port != 0) return NOT_SUPPORTED;
  /* which of both is asked for comes in, as the vendor's own programs use it */
  int is_v6 = ip->ip_type == DCMI_IPADDR_TYPE_V6;
  memset(ip->u_addr.ip6, 0, sizeof ip->u_addr.ip6);
  memset(mask, 0, sizeof *mask);
  if (!chip(card, device, is_v6 ? "ip6" : "ip", text, sizeof text)) return NOT_EXIST;
  if (!text[0]) return NOT_SUPPORTED;
  inet_pton(is_v6 ? AF_INET6 : AF_INET, text, is_v6 ? ip->u_addr.ip6 : ip->u_addr.ip4);
  return OK;
}

int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *info) {
  long memory;
  BEGIN(card, device);
  int code = number(card, device, "memory", &memory);
  if (code) return code;
  memset(info, 0, sizeof *info);
  info->memory_size = (unsigned long long)memory;
  return OK;
}

/* virtual=100:vir04,101:vir02: all numbers, or the template of one. */
static int virtual_devices(int card, int device, unsigned int sub_command, void *buffer) {
  char text[LINE], *rest = NULL;
  struct dcmi_soc_total_resource *total = buffer;
  struct dcmi_vdev_query_stru *one = buffer;
  if (!chip(card, device, "virtual", text, sizeof text)) return NOT_EXIST;
  if (!text[0]) return NOT_SUPPORTED;
  if (sub_command == 1) total->vdev_num = 0;
  for (char *c = strtok_r(text, ",", &rest); c; c = strtok_r(NULL, ",", &rest)) {
    char name[16] = "";
    unsigned int number;
    if (sscanf(c, "%u:%15s", &number, name) != 2) continue;
    if (sub_command == 1) total->vdev_id[total->vdev_num++] = number;
    if (sub_command == 0 && number == one->vdev_id)
      memcpy(one->query_info.name, name, sizeof name);
  }
  return OK;
}

int dcmi_get_device_info(int card, int device, int main_command, unsigned int sub_command,
                         void *buffer, unsigned int *size) {
  struct dcmi_spod_info *info = buffer;
  long sdid, pod = 0, server = 0;
  BEGIN(card, device);
  if (main_command == 52 && sub_command == 1 && *size == sizeof(struct dcmi_soc_total_resource))
    return virtual_devices(card, device, sub_command, buffer);
  if (main_command == 52 && sub_command == 0 && *size == sizeof(struct dcmi_vdev_query_stru))
    return virtual_devices(card, device, sub_command, buffer);
  if (main_command != 12 || sub_command != 1 || *size < sizeof *info) return NOT_SUPPORTED;
  int code = number(card, device, "sdid", &sdid);
  if (code) return code;
  number(card, device, "pod", &pod);
  number(card, device, "server", &server);
  memset(info, 0, sizeof *info);
  info->sdid = (unsigned)sdid;
  info->super_pod_id = (unsigned)pod;
  info->server_id = (unsigned)server;
  return OK;
}

int dcmi_get_affinity_cpu_info_by_device_id(int card, int device, char *cpus, int *size) {
  char text[LINE];
  BEGIN(card, device);
  if (!chip(card, device, "cpus", text, sizeof text)) return NOT_EXIST;
  if (!text[0]) return NOT_SUPPORTED;
  snprintf(cpus, (size_t)*size, "%s", text);
  *size = (int)strlen(cpus);
  return OK;
}

static dcmi_fault_event_callback subscriber;
static long told_to; /* how far into the file */

static FILE *events(void) {
  char path[LINE];
  snprintf(path, sizeof path, "%s.events", getenv("FAKE_DCMI"));
  return fopen(path, "r");
}

static void tell_new(void) {
  char line[LINE];
  FILE *file = events();
  if (!file) return;
  fseek(file, told_to, SEEK_SET);
  while (fgets(line, sizeof line, file) && strchr(line, '\n')) {
    unsigned int logic, code, severity, assertion;
    told_to = ftell(file);
    if (sscanf(line, "%u %x %u %u", &logic, &code, &severity, &assertion) != 4) continue;
    struct dcmi_event event = {.type = DCMI_DMS_FAULT_EVENT};
    event.event_t.dms_event.deviceid = (unsigned short)logic;
    event.event_t.dms_event.event_id = code;
    event.event_t.dms_event.severity = (unsigned char)severity;
    event.event_t.dms_event.assertion = (unsigned char)assertion;
    subscriber(&event);
  }
  fclose(file);
}

/* Looks when something in the folder changes: as a driver it is to cost nothing else. */
static void *tell(void *unused) {
  char folder[LINE], changes[LINE];
  int changed = inotify_init();
  (void)unused;
  snprintf(folder, sizeof folder, "%s", getenv("FAKE_DCMI"));
  inotify_add_watch(changed, dirname(folder), IN_CREATE | IN_MODIFY);
  do tell_new();
  while (read(changed, changes, sizeof changes) > 0 || !usleep(2000)); /* or it polls */
  return NULL;
}

int dcmi_subscribe_fault_event(int card, int device, struct dcmi_event_filter filter,
                               dcmi_fault_event_callback callback) {
  pthread_t thread;
  BEGIN(card, device);
  if (card != ANY || device != ANY || filter.filter_flag || filter.resv[31])
    return NOT_SUPPORTED;
  FILE *file = events();
  if (file) {
    fseek(file, 0, SEEK_END);
    told_to = ftell(file);
    fclose(file);
  }
  subscriber = callback;
  return pthread_create(&thread, NULL, tell, NULL) ? -8005 : OK;
}
