/* What the control groups of a process grant it: containers and services run below such limits, of which the machine's
 * own figures say nothing.
 *
 *     double cpus = cgroup_cpus(CGROUP_ROOT, CGROUP_OWN);        2.5; 0: no limit
 *     double bytes = cgroup_memory(CGROUP_ROOT, CGROUP_OWN);     what is left of it
 *
 * root: the folder where the kernel shows the groups; own: the file that names those of a process, "0::/a/b" (version
 * 2), "4:cpu,cpuacct:/a/b" (version 1). Of the groups on the way up the least limit counts; 0: there is none.
 */
#ifndef QKV_BASE_CGROUP_H
#define QKV_BASE_CGROUP_H

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_OWN "/proc/self/cgroup"

double cgroup_cpus(const char *root, const char *own);   /* CPUs' worth of time: cpu.max, cpu/cpu.cfs_quota_us */
/* Bytes that are left now of memory.max, or memory/memory.limit_in_bytes, beside what the group's processes hold;
 * swap is not counted. At least 1 where there is a limit. */
double cgroup_memory(const char *root, const char *own);
#endif
