#include "bootstrap/appointments.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace tutti {
namespace {

FileDescriptor new_event() {
  FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw_system_error("eventfd for a meeting point (see `ulimit -n`)");
  return event;
}

void signal(const FileDescriptor& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.fd(), &one, sizeof one);
}

}  // namespace

std::uint64_t Appointment::communicator() const {
  const protocol::Bytes32 all =
      protocol::hash({}, "communicator", {protocol::bytes_of(number), list});
  std::uint64_t name = 0;
  std::memcpy(&name, all.data(), sizeof name);
  return name;
}

Appointments::Appointments(std::string name) : name_(std::move(name)), changed_(new_event()) {}

std::shared_ptr<Appointments::Call> Appointments::begin(Appointment about, std::vector<Handle> list,
                                                        int rank) {
  auto call = std::make_shared<Call>();
  call->about = about;
  call->list = std::move(list);
  call->rank = rank;
  call->told = new_event();
  {
    const std::lock_guard lock(mutex_);
    if (!used_.insert(about.number).second) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("the number {} was already used by {}: every attempt needs a fresh "
                              "number, the same on all ranks",
                              about.number, name_));
    }
    calls_[about.number] = call;
  }
  signal(changed_);
  return call;
}

void Appointments::end(const Call& call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.erase(call.about.number);
  }
  signal(changed_);
}

void Appointments::refuse(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    used_.insert(number);
  }
  signal(changed_);
}

std::optional<Error> Appointments::trouble(const Call& call) const {
  const std::lock_guard lock(mutex_);
  return call.trouble;
}

void Appointments::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  signal(changed_);
}

void Appointments::read_changes() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(changed_.fd(), &count, sizeof count);
}

bool Appointments::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::vector<std::shared_ptr<const Appointments::Call>> Appointments::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Call>> all;
  for (const auto& [number, call] : calls_) all.push_back(call);
  return all;
}

std::optional<Error> Appointments::judge(const Appointment& theirs) {
  const std::lock_guard lock(mutex_);
  const auto own = calls_.find(theirs.number);
  if (own == calls_.end()) {
    if (!used_.contains(theirs.number)) return std::nullopt;
    return Error(ErrorCode::invalid_usage,
                 fmt::format("the number {} was already used by {}, which has met with it, or has "
                             "given it up: every attempt needs a fresh number, the same on all "
                             "ranks",
                             theirs.number, name_));
  }
  Call& call = *own->second;
  if (call.about == theirs) return std::nullopt;
  const Error differs(ErrorCode::mismatch,
                      fmt::format("{} and another rank were called with the number {} and "
                                  "different lists of handles: all ranks pass the same list, in "
                                  "the same order",
                                  name_, theirs.number));
  if (!call.trouble) call.trouble = differs;
  signal(call.told);
  return differs;
}

}  // namespace tutti
