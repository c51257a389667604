// The wall clock of a program is ahead by the number of seconds in the file that PROOF_CLOCK names.
// Other clocks stay as they are. Signal handlers may call all functions.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t right = 0;
static const volatile int64_t *ahead = &right;

__attribute__((constructor)) static void map_clock(void) {
	const char *path = getenv("PROOF_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *data = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
	if (data == MAP_FAILED)
		abort();
	ahead = data;
	close(file);
}

int clock_gettime(clockid_t id, struct timespec *at) {
	int failed = syscall(SYS_clock_gettime, id, at);
	if (!failed && id == CLOCK_REALTIME)
		at->tv_sec += *ahead;
	return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	if (!failed)
		*at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	(void)zone;
	return failed;
}

time_t time(time_t *at) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return -1;
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
