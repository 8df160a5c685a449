#include "bootstrap/meeting_point.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "bootstrap/rendezvous_server.h"
#include "core/error.h"

namespace tutti {
namespace {

Handle own_process() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  Handle handle;
  handle.host = name.data();
  handle.pid = ::getpid();
  return handle;
}

[[noreturn]] void refuse_list(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

}  // namespace

MeetingPoint::MeetingPoint(const std::string& address)
    : own_(own_process()), appointments_(std::make_shared<Appointments>(own_.process())) {
  own_.id = serve_appointments(appointments_, address);
}

MeetingPoint::~MeetingPoint() {
  // A child of fork() has no server, and the parent's goes on.
  if (generation_ == process_generation()) appointments_->close();
}

Handle MeetingPoint::handle() const {
  Handle handle = own_;
  handle.newest = newest_.load();
  return handle;
}

Reunion MeetingPoint::reunion(std::span<const std::string> list, std::uint64_t number) {
  if (number == 0) refuse_list("a number of a meeting is positive, and this one is 0");
  if (list.empty()) refuse_list("the list of handles is empty");
  std::vector<Handle> handles;
  int rank = -1;
  for (std::size_t r = 0; r < list.size(); ++r) {
    const auto handle = Handle::from(list[r]);
    if (!handle) {
      refuse_list(fmt::format("entry {} of the list of handles is no handle of Tutti", r));
    }
    const auto same = std::ranges::find(handles, handle->id, &Handle::id);
    if (same != handles.end()) {
      refuse_list(fmt::format("entries {} and {} of the list of handles are the same rank ({})",
                              same - handles.begin(), r, handle->process()));
    }
    if (handle->id == own_.id) rank = static_cast<int>(r);
    handles.push_back(*handle);
  }
  if (rank < 0) {
    refuse_list(
        fmt::format("the list of handles has not the one of this rank ({}): only the ranks "
                    "in the list call",
                    own_.process()));
  }
  const std::uint64_t theirs = handles[static_cast<std::size_t>(rank)].newest;
  if (theirs != newest_.load()) {
    appointments_->refuse(number);
    refuse_list(fmt::format(
        "entry {} of the list is an old handle of this rank ({}), from {}; its "
        "newest is from {}: collect the handles anew",
        rank, own_.process(), theirs == 0 ? "its start" : fmt::format("number {}", theirs),
        newest_.load() == 0 ? "its start" : fmt::format("number {}", newest_.load())));
  }
  Appointment about;
  about.number = number;
  std::string all;
  for (const std::string& handle : list) all += handle + "\n";
  about.list = protocol::hash({}, "handles", {std::as_bytes(std::span(all))});
  return {appointments_, appointments_->begin(about, std::move(handles), rank)};
}

}  // namespace tutti
