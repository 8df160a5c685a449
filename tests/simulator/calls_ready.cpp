// What is ready, in the simulated system (calls.h): poll, epoll and event counters; and its
// descriptors.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <iterator>

#include "tests/simulator/calls.h"

namespace {

using namespace tutti::simulator;

Time deadline_in(long nanoseconds) {
  return nanoseconds < 0 ? kNever : world().now() + static_cast<Time>(nanoseconds);
}

// --- poll ----------------------------------------------------------------------------------------

struct Poll {
  pollfd* entries;
  nfds_t count;
  Process* process;
};

int look(Poll& poll) {
  int ready = 0;
  for (nfds_t e = 0; e < poll.count; ++e) {
    pollfd& entry = poll.entries[e];
    entry.revents = 0;
    if (entry.fd < 0) continue;
    Object* const object = file(*poll.process, entry.fd);
    const std::uint32_t is = object == nullptr ? EPOLLIN | EPOLLOUT : object->ready();
    entry.revents = static_cast<short>(
        is & (static_cast<std::uint32_t>(static_cast<unsigned short>(entry.events)) | EPOLLERR |
              EPOLLHUP));
    if (object == nullptr && entry.fd >= kFirstFile) entry.revents = POLLNVAL;
    if (entry.revents != 0) ++ready;
  }
  return ready;
}

int poll_until(pollfd* entries, nfds_t count, Time deadline) {
  begin_call(kMicrosecond);
  Poll poll{entries, count, caller()->process};
  world().wait_until([](void* its) { return look(*static_cast<Poll*>(its)) > 0; }, &poll, deadline);
  return look(poll);
}

}  // namespace

extern "C" {

// --- what is ready -------------------------------------------------------------------------------

int eventfd(unsigned value, int flags) noexcept {
  if (caller() == nullptr) return REAL(eventfd)(value, flags);
  auto* const counter = new Counter(*caller()->process);
  counter->value = value;
  counter->blocks = (flags & EFD_NONBLOCK) == 0;
  return add_file(*caller()->process, *counter);
}

int poll(pollfd* entries, nfds_t count, int milliseconds) {
  if (caller() == nullptr) return REAL(poll)(entries, count, milliseconds);
  return poll_until(entries, count, deadline_in(milliseconds < 0 ? -1 : milliseconds * 1'000'000L));
}

int ppoll(pollfd* entries, nfds_t count, const timespec* time, const sigset_t* mask) {
  if (caller() == nullptr) return REAL(ppoll)(entries, count, time, mask);
  return poll_until(
      entries, count,
      deadline_in(time == nullptr ? -1 : time->tv_sec * 1'000'000'000L + time->tv_nsec));
}

int epoll_create1(int flags) noexcept {
  if (caller() == nullptr) return REAL(epoll_create1)(flags);
  return add_file(*caller()->process, *new Epoll(*caller()->process));
}

int epoll_ctl(int fd, int operation, int which, epoll_event* event) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(epoll_ctl)(fd, operation, which, event);
  Object* const about = simulated(which);
  if (about == nullptr) return failed(EBADF);
  Epoll& set = static_cast<Epoll&>(*object);
  const auto found = set.watches.find(which);
  const bool there = found != set.watches.end();
  if (operation == EPOLL_CTL_ADD) {
    if (there) return failed(EEXIST);
    set.watches.emplace(which, Epoll::Watch{about, *event});
    about->sets.push_back(&set);
  } else {
    if (!there) return failed(ENOENT);
    if (operation == EPOLL_CTL_MOD) {
      found->second = Epoll::Watch{about, *event};
    } else {
      std::erase(about->sets, &set);
      set.watches.erase(found);
    }
  }
  set.changed();
  return 0;
}

int epoll_wait(int fd, epoll_event* events, int most, int milliseconds) {
  Object* const object = simulated(fd);
  if (object == nullptr) {
    if (caller() != nullptr) return failed(EBADF);
    return REAL(epoll_wait)(fd, events, most, milliseconds);
  }
  begin_call(kMicrosecond);
  Epoll& set = static_cast<Epoll&>(*object);
  world().wait_until(is_readable, &set,
                     deadline_in(milliseconds < 0 ? -1 : milliseconds * 1'000'000L));
  int count = 0;
  // From any of them on, as the kernel promises no order.
  const std::size_t watches = set.watches.size();
  if (watches == 0) return 0;
  auto at =
      std::next(set.watches.begin(), static_cast<std::ptrdiff_t>(world().random.below(watches)));
  for (std::size_t w = 0; w < watches && count < most; ++w) {
    Epoll::Watch& watch = at->second;
    if (const std::uint32_t is = Epoll::ready_of(watch); is != 0) {
      events[count] = watch.event;
      events[count++].events = is;
      watch.said = watch.object->changes;
      watch.off = (watch.event.events & EPOLLONESHOT) != 0;
    }
    if (++at == set.watches.end()) at = set.watches.begin();
  }
  return count;
}

// --- descriptors ---------------------------------------------------------------------------------

int close(int fd) {
  if (caller() == nullptr) return REAL(close)(fd);
  Process& process = *caller()->process;
  if (fd < kFirstFile) {
    std::erase(process.real_files, fd);
    return REAL(close)(fd);
  }
  if (file(process, fd) == nullptr) {
    world().tell("close(%d), which is not open", fd);
    return failed(EBADF);
  }
  close_file(process, fd);
  begin_call(kMicrosecond);
  return 0;
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  Object* const object = simulated(fd);
  if (object == nullptr) {
    const int result = REAL(fcntl)(fd, command, argument);
    const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    if (copies && result >= 0 && caller() != nullptr)
      caller()->process->real_files.push_back(result);
    return result;
  }
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return add_file(*caller()->process, *object);
    case F_GETFL:
      return O_RDWR | (object->blocks ? 0 : O_NONBLOCK);
    case F_SETFL:
      object->blocks = (argument & O_NONBLOCK) == 0;
      return 0;
    default:
      return 0;
  }
}

}  // extern "C"
