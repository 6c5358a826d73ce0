/* A disk that is full or slow as long as a file says so, for whoever is started with this
 * preloaded. $BAD_DISK is a folder: `full` in it refuses what is written below a folder named
 * `state`, `full-out` the same below `out`, `slow` in it makes every sync of such a file take a second, and `stuck` in it lets nobody
 * remove the folder of a workspace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int says(const char *what) {
    const char *folder = getenv("BAD_DISK");
    char path[PATH_MAX];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, what) >= (int)sizeof path)
        return 0;
    return access(path, F_OK) == 0;
}

static int is_below(const char *folder, const char *what, int fd) {
    char path[PATH_MAX], link[64];
    if (!says(what))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, folder) != NULL;
}

static int is(const char *what, int fd) {
    return is_below("/state/", what, fd);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define REFUSE_IF_FULL(fd) \
    if (is("full", fd) || is_below("/out/", "full-out", fd)) { \
        errno = ENOSPC; \
        return -1; \
    }

ssize_t write(int fd, const void *from, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    REFUSE_IF_FULL(fd)
    return real(fd, from, count);
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    REFUSE_IF_FULL(fd)
    return real(fd, from, count, at);
}

ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    REFUSE_IF_FULL(fd)
    return real(fd, from, count, at);
}

static void wait_if_slow(int fd) {
    struct timespec second = {1, 0};
    if (is("slow", fd))
        nanosleep(&second, NULL);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    wait_if_slow(fd);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    wait_if_slow(fd);
    return real(fd);
}

int unlinkat(int folder, const char *path, int flags) {
    struct timespec moment = {0, 50 * 1000 * 1000};
    REAL(int, "unlinkat", int, const char *, int);
    while (strstr(path, "/workspaces/") && says("stuck"))
        nanosleep(&moment, NULL);
    return real(folder, path, flags);
}
