// Clocks, chance, the environment and the machine, as the simulated system has them (calls.h).
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "tests/simulator/calls.h"

namespace {

using namespace tutti::simulator;

constexpr int kCores = 4;
constexpr std::int64_t kEpoch =
    1'800'000'000'000'000'000;  // when a history begins, in the year 2027

Process& process() { return *caller()->process; }

timespec to_timespec(std::int64_t time) {
  return {static_cast<time_t>(time / 1'000'000'000), static_cast<long>(time % 1'000'000'000)};
}

std::int64_t clock_of_caller(clockid_t clock) {
  const auto now = static_cast<std::int64_t>(world().now());
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE
             ? kEpoch + now + process().wall_offset
             : now + process().clock_offset;
}

/// The files that say what the machine is are not there: so a history does not depend on it.
bool is_of_the_machine(const char* path) {
  const std::string_view its(path);
  return its.starts_with("/proc") || its.starts_with("/sys");
}

}  // namespace

extern "C" {

// --- time ----------------------------------------------------------------------------------------

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (caller() == nullptr) return REAL(clock_gettime)(clock, time);
  world().spend(30);
  if (world().random.once_in(32)) world().yield();
  *time = to_timespec(clock_of_caller(clock));
  return 0;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  if (caller() == nullptr) return REAL(gettimeofday)(time, zone);
  const std::int64_t now = clock_of_caller(CLOCK_REALTIME);
  *time = {now / 1'000'000'000, now % 1'000'000'000 / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  if (caller() == nullptr) return REAL(time)(result);
  const time_t now = clock_of_caller(CLOCK_REALTIME) / 1'000'000'000;
  if (result != nullptr) *result = now;
  return now;
}

int nanosleep(const timespec* time, timespec* left) {
  if (caller() == nullptr) return REAL(nanosleep)(time, left);
  const Time least = static_cast<Time>(time->tv_sec) * kSecond + static_cast<Time>(time->tv_nsec);
  world().sleep_until(world().now() + least + 50 * kMicrosecond);
  return 0;
}

int usleep(useconds_t microseconds) {
  if (caller() == nullptr) return REAL(usleep)(microseconds);
  world().sleep_until(world().now() + (microseconds + 50) * kMicrosecond);
  return 0;
}

// --- chance --------------------------------------------------------------------------------------

void randombytes_buf(void* const data, const size_t bytes) {
  if (caller() == nullptr) {
    arc4random_buf(data, bytes);
    return;
  }
  auto* const to = static_cast<unsigned char*>(data);
  for (size_t b = 0; b < bytes; ++b) to[b] = static_cast<unsigned char>(world().random.next());
}

// --- who and where -------------------------------------------------------------------------------

pid_t getpid() noexcept {
  return caller() == nullptr ? REAL(getpid)() : static_cast<pid_t>(process().id());
}
pid_t getppid() noexcept { return caller() == nullptr ? REAL(getppid)() : 1; }
pid_t gettid() noexcept { return caller() == nullptr ? REAL(gettid)() : caller()->number + 5000; }
uid_t getuid() noexcept { return caller() == nullptr ? REAL(getuid)() : 1000; }

char* getenv(const char* name) noexcept {
  if (caller() == nullptr) return REAL(getenv)(name);
  const auto found = process().environment.find(name);
  return found == process().environment.end() ? nullptr : found->second.data();
}

char* secure_getenv(const char* name) noexcept { return getenv(name); }

int setenv(const char* name, const char* value, int overwrite) noexcept {
  if (caller() == nullptr) return REAL(setenv)(name, value, overwrite);
  if (overwrite != 0) process().environment.erase(name);
  process().environment.try_emplace(name, value);
  return 0;
}

int unsetenv(const char* name) noexcept {
  if (caller() == nullptr) return REAL(unsetenv)(name);
  process().environment.erase(name);
  return 0;
}

int gethostname(char* name, size_t length) noexcept {
  if (caller() == nullptr) return REAL(gethostname)(name, length);
  std::snprintf(name, length, "host%d", process().host);
  return 0;
}

int getifaddrs(ifaddrs** list) noexcept {
  if (caller() == nullptr) return REAL(getifaddrs)(list);
  struct Entry {
    ifaddrs entry{};
    sockaddr_in address{}, mask{};
    char name[8];
  };
  auto* const entries = new Entry[2];
  for (int e = 0; e < 2; ++e) {
    Entry& its = entries[e];
    its.address.sin_family = its.mask.sin_family = AF_INET;
    its.address.sin_addr.s_addr = htonl(e == 0 ? 0x7f000001U : address_of_host(process().host).ip);
    its.mask.sin_addr.s_addr = htonl(e == 0 ? 0xff000000U : 0xffffff00U);
    std::strcpy(its.name, e == 0 ? "lo" : "sim0");
    its.entry.ifa_name = its.name;
    its.entry.ifa_addr = reinterpret_cast<sockaddr*>(&its.address);
    its.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&its.mask);
    its.entry.ifa_flags = IFF_UP | IFF_RUNNING | (e == 0 ? IFF_LOOPBACK : IFF_BROADCAST);
    its.entry.ifa_next = e == 0 ? &entries[1].entry : nullptr;
  }
  *list = &entries[0].entry;
  return 0;
}

void freeifaddrs(ifaddrs* list) noexcept {
  if (caller() == nullptr) REAL(freeifaddrs)(list);
}

unsigned if_nametoindex(const char* name) noexcept {
  if (caller() == nullptr) return REAL(if_nametoindex)(name);
  return std::string_view(name) == "lo" ? 1 : 2;
}

int kill(pid_t pid, int signal) noexcept {
  if (caller() == nullptr) return REAL(kill)(pid, signal);
  for (const auto& other : world().processes) {
    if (other->id() == pid && other->alive) return 0;
  }
  return failed(ESRCH);
}

// --- the machine ---------------------------------------------------------------------------------

int get_nprocs() noexcept { return caller() == nullptr ? REAL(get_nprocs)() : kCores; }

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* set) noexcept {
  if (caller() == nullptr) return REAL(sched_getaffinity)(pid, bytes, set);
  std::memset(set, 0, bytes);
  *reinterpret_cast<unsigned char*>(set) = (1 << kCores) - 1;
  return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t* set) noexcept {
  return caller() == nullptr ? REAL(sched_setaffinity)(pid, bytes, set) : 0;
}

int sched_getcpu() noexcept { return caller() == nullptr ? REAL(sched_getcpu)() : 0; }

int getrlimit(__rlimit_resource_t what, rlimit* limit) noexcept {
  if (caller() == nullptr) return REAL(getrlimit)(what, limit);
  *limit = {RLIM_INFINITY, RLIM_INFINITY};
  if (what == RLIMIT_NOFILE) *limit = {4096, 4096};
  return 0;
}

// --- files ---------------------------------------------------------------------------------------

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  if (caller() == nullptr) return REAL(open)(path, flags, mode);
  if (is_of_the_machine(path)) return failed(ENOENT);
  const int fd = REAL(open)(path, flags, mode);
  if (fd >= 0) process().real_files.push_back(fd);
  return fd;
}

FILE* fopen(const char* path, const char* mode) {
  if (caller() == nullptr) return REAL(fopen)(path, mode);
  if (is_of_the_machine(path)) return failed<FILE*>(ENOENT, nullptr);
  return REAL(fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

DIR* opendir(const char* path) {
  if (caller() == nullptr) return REAL(opendir)(path);
  if (is_of_the_machine(path)) return failed<DIR*>(ENOENT, nullptr);
  return REAL(opendir)(path);
}

ssize_t readlink(const char* path, char* to, size_t bytes) noexcept {
  if (caller() != nullptr && is_of_the_machine(path)) return failed<ssize_t>(ENOENT);
  return REAL(readlink)(path, to, bytes);
}

int stat(const char* path, struct stat* to) noexcept {
  if (caller() != nullptr && is_of_the_machine(path)) return failed(ENOENT);
  return REAL(stat)(path, to);
}

/// No libraries of others are there.
void* dlopen(const char* path, int flags) noexcept {
  return caller() == nullptr ? REAL(dlopen)(path, flags) : nullptr;
}
char* dlerror() noexcept {
  static char text[] = "there is no such library";
  return caller() == nullptr ? REAL(dlerror)() : text;
}

int memfd_create(const char* name, unsigned flags) noexcept {
  const int fd = REAL(memfd_create)(name, flags);
  if (caller() != nullptr && fd >= 0) process().real_files.push_back(fd);
  return fd;
}

/// All processes of the world have one address space.
static ssize_t move(pid_t pid, const iovec* to, unsigned long to_count, const iovec* from,
                    unsigned long from_count) {
  bool there = false;
  for (const auto& other : world().processes) there = there || (other->id() == pid && other->alive);
  if (!there) return failed<ssize_t>(ESRCH);
  begin_call(kMicrosecond);
  ssize_t moved = 0;
  std::size_t to_at = 0, from_at = 0;
  while (to_count > 0 && from_count > 0) {
    const std::size_t bytes = std::min(to->iov_len - to_at, from->iov_len - from_at);
    std::memcpy(static_cast<char*>(to->iov_base) + to_at,
                static_cast<const char*>(from->iov_base) + from_at, bytes);
    moved += static_cast<ssize_t>(bytes);
    to_at += bytes;
    from_at += bytes;
    if (to_at == to->iov_len) --to_count, ++to, to_at = 0;
    if (from_at == from->iov_len) --from_count, ++from, from_at = 0;
  }
  return moved;
}

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                         const iovec* remote, unsigned long remote_count, unsigned long) noexcept {
  return move(pid, local, local_count, remote, remote_count);
}

ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count,
                          const iovec* remote, unsigned long remote_count, unsigned long) noexcept {
  return move(pid, remote, remote_count, local, local_count);
}

}  // extern "C"

// libstdc++'s, which asks the processor.
std::random_device::result_type std::random_device::_M_getval() {
  return static_cast<result_type>(caller() == nullptr ? arc4random() : world().random.next());
}
