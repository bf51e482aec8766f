/* Proves: sizes are read as documented, the budget adds up, and the machine's and its cgroups'
 * limits are found: v1, v2, both mounted, containers, none. */
#include <stdio.h>
#include <string.h>

#include "lib_test.h"
#include "../stream/budget.h"
#include "../stream/cgroup.h"

#define MIB ((uint64_t)1 << 20)

static void sizes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"64M", 64 * MIB},
                {"64MiB", 64 * MIB},
                {"64MB", 64 * MIB},
                {"1.5G", 1536 * MIB},
                {"0.25k", 256},
                {"2T", 2 * MIB * MIB},
                {"10B", 10},
                {"1.000000000001G", 1024 * MIB},
                {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {"",
                                      "M",
                                      "-1",
                                      "1.5",
                                      "1.",
                                      "1.M",
                                      ".5G",
                                      "1 G",
                                      " 1G",
                                      "1GG",
                                      "1GiBs",
                                      "1iB",
                                      "0x10",
                                      "1e9",
                                      "inf",
                                      "1,5G",
                                      "99999999999999999999",
                                      "99999999T"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t v = 1;
        CHECK(sl_size_parse(good[i].text, &v) && v == good[i].bytes, "%s: %llu", good[i].text,
              (unsigned long long)v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t v;
        CHECK(!sl_size_parse(bad[i], &v), "%s", bad[i]);
    }
}

static void terms(void)
{
    char text[128];
    sl_budget b = {.limit_bytes = 10 * MIB};
    sl_budget_charge(&b, "program", 6 * MIB);
    sl_budget_charge(&b, "tokenizer", MIB / 2);
    sl_budget_charge(&b, "program", MIB);
    CHECK(b.n_terms == 2 && sl_budget_charged(&b) == 15 * MIB / 2);
    CHECK(sl_budget_left(&b) == 5 * MIB / 2);
    sl_budget_describe(&b, text, sizeof text);
    CHECK(strcmp(text, "program 7.0 MiB + tokenizer 0.5 MiB") == 0, "%s", text);
    sl_budget_describe(&b, text, 12);
    CHECK(strcmp(text, "program 7.0") == 0, "%s", text);
    sl_budget_charge(&b, "rest", UINT64_MAX);
    CHECK(sl_budget_charged(&b) == UINT64_MAX && sl_budget_left(&b) == 0);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i",
                                        "j", "k", "l", "m", "n", "o", "p", "q", "r"};
    b = (sl_budget){.limit_bytes = 100};
    for (size_t i = 0; i < 18; i++)
        sl_budget_charge(&b, names[i], 1);
    CHECK(sl_budget_charged(&b) == 18, "more names than terms: nothing goes uncounted");
}

/* A machine: pairs of path and text. */
static bool from_table(void *ctx, const char *path, char *text, size_t cap)
{
    for (const char *const *t = ctx; *t; t += 2)
        if (strcmp(t[0], path) == 0) {
            snprintf(text, cap, "%s", t[1]);
            return true;
        }
    return false;
}

#define MEMINFO "/proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  6291456 kB\n"
#define MOUNT_V1                                                                                   \
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                            \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
#define MOUNT_V2 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"

static sl_memory_view look(const char *const *table)
{
    sl_memory_view v;
    sl_err err = {0};
    const void *ctx = table;
    CHECK(sl_memory_look_with(from_table, (void *)(uintptr_t)ctx, &v, &err) == SL_OK, "%s",
          err.text);
    CHECK(v.total_bytes == 8192 * MIB && v.available_bytes == 6144 * MIB);
    return v;
}

static void view_check(const char *const *table, uint64_t limit, uint64_t used, const char *where)
{
    sl_memory_view v = look(table);
    CHECK(v.cgroup_limit == limit, "%llu", (unsigned long long)v.cgroup_limit);
    CHECK(v.cgroup_used == used, "%llu", (unsigned long long)v.cgroup_used);
    CHECK(strcmp(v.cgroup, where) == 0, "%s", v.cgroup);
}

static void machines(void)
{
    test_case("no cgroups");
    static const char *const none[] = {MEMINFO, NULL};
    view_check(none, UINT64_MAX, 0, "");
    sl_memory_view v = look(none);
    CHECK(sl_memory_auto(&v) == 6144 * MIB - 6144 * MIB / 10);

    test_case("v1, the parent limits");
    static const char *const v1[] = {MEMINFO,
                                     "/proc/self/mountinfo",
                                     MOUNT_V1 MOUNT_V2,
                                     "/proc/self/cgroup",
                                     "5:cpuset:/\n4:cpu,memory:/a/b\n0::/\n",
                                     "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                     "9223372036854771712\n",
                                     "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                                     "1073741824\n",
                                     "/sys/fs/cgroup/memory/a/memory.usage_in_bytes",
                                     "314572800\n",
                                     "/sys/fs/cgroup/memory/a/memory.stat",
                                     "cache 9\ninactive_file 7\ntotal_inactive_file 104857600\n",
                                     "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                                     "2147483648\n",
                                     NULL};
    view_check(v1, 1024 * MIB, 200 * MIB, "/sys/fs/cgroup/memory/a");
    v = look(v1);
    CHECK(sl_memory_auto(&v) == 568 * MIB, "%llu", (unsigned long long)sl_memory_auto(&v));

    test_case("v2, high below max");
    static const char *const v2[] = {MEMINFO,
                                     "/proc/self/mountinfo",
                                     "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                                     "/proc/self/cgroup",
                                     "0::/user.slice/run.scope\n",
                                     "/sys/fs/cgroup/user.slice/memory.max",
                                     "max\n",
                                     "/sys/fs/cgroup/user.slice/memory.high",
                                     "max\n",
                                     "/sys/fs/cgroup/user.slice/run.scope/memory.max",
                                     "4294967296\n",
                                     "/sys/fs/cgroup/user.slice/run.scope/memory.high",
                                     "3221225472\n",
                                     "/sys/fs/cgroup/user.slice/run.scope/memory.current",
                                     "104857600\n",
                                     "/sys/fs/cgroup/user.slice/run.scope/memory.stat",
                                     "anon 5\ninactive_file 52428800\n",
                                     NULL};
    view_check(v2, 3072 * MIB, 50 * MIB, "/sys/fs/cgroup/user.slice/run.scope");

    test_case("a container: the mount's root is our group");
    static const char *const box[] = {MEMINFO,
                                      "/proc/self/mountinfo",
                                      "9 1 0:26 /docker/77 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                                      "/proc/self/cgroup",
                                      "0::/docker/77\n",
                                      "/sys/fs/cgroup/memory.max",
                                      "536870912\n",
                                      "/sys/fs/cgroup/memory.current",
                                      "536870912\n",
                                      NULL};
    view_check(box, 512 * MIB, 512 * MIB, "/sys/fs/cgroup");
    v = look(box);
    CHECK(sl_memory_auto(&v) == 0);

    test_case("a container: our group cannot be seen");
    static const char *const hidden[] = {
        MEMINFO,
        "/proc/self/mountinfo",
        "9 1 0:26 /docker/77 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        "/proc/self/cgroup",
        "0::/../other\n",
        "/sys/fs/cgroup/memory.max",
        "536870912\n",
        NULL};
    view_check(hidden, 512 * MIB, 0, "/sys/fs/cgroup");

    test_case("text that is cut off or wrong");
    static const char *const broken[] = {MEMINFO,
                                         "/proc/self/mountinfo",
                                         "35 31\n - \n - cgroup2\n",
                                         "/proc/self/cgroup",
                                         ":\n::\n4:memory\n",
                                         NULL};
    view_check(broken, UINT64_MAX, 0, "");
    static const char *const empty[] = {"/proc/meminfo", "MemTotal: kB\n", NULL};
    const void *ctx = empty;
    sl_err err = {0};
    CHECK(sl_memory_look_with(from_table, (void *)(uintptr_t)ctx, &v, &err) == SL_EIO);
}

static void this_machine(void)
{
    test_case("this machine");
    sl_memory_view v;
    sl_memory_use u;
    sl_err err = {0};
    CHECK(sl_memory_look(&v, &err) == SL_OK && v.total_bytes >= v.available_bytes, "%s", err.text);
    CHECK(sl_memory_auto(&v) < v.available_bytes);
    CHECK(sl_memory_use_now(&u, &err) == SL_OK && u.anon_bytes > 0 && u.peak_bytes >= u.anon_bytes,
          "%s", err.text);
}

int main(void)
{
    sizes();
    terms();
    machines();
    this_machine();
    return test_end();
}
