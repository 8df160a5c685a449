#include "parallel/weights/receiver.h"

#include <fmt/format.h>
#include <tutti/core/background.h>
#include <tutti/core/error.h>

#include <chrono>
#include <optional>
#include <utility>

#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {

Receiver::Receiver(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
                   WeightsOptions options)
    : JobSide(job, std::move(layout), reshard::Side::to, std::move(place), options) {
  for (reshard::Buffers& set : buffers_) set = reshard::Buffers(layout_, job_.rank());
}

Receiver::Receiver(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
                   std::span<void* const> targets, WeightsOptions options)
    : JobSide(job, std::move(layout), reshard::Side::to, std::move(place), options),
      targets_(targets.begin(), targets.end()) {
  std::optional<Error> error;
  try {
    check_targets();
  } catch (const Error& e) {
    error = e;
  }
  error = agree(error);
  if (error) throw *error;
  buffers_[other()] = reshard::Buffers(layout_, job_.rank());
}

void Receiver::check_targets() const {
  const auto bytes = layout_.bytes_of(job_.rank());
  if (targets_.size() != bytes.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("receiver: rank {} passes {} targets, and the layout has {} buffers",
                            job_.rank(), targets_.size(), bytes.size()),
                job_.rank());
  }
  std::vector<Device::Given> given;
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    given.push_back({.name = layout_.buffers[b], .memory = targets_[b], .count = bytes[b]});
  }
  device().check_memory("receiver", given);
}

/// The next version into the set of buffers that is not in use. An error of any rank is one of all.
std::optional<Error> Receiver::take(std::optional<Meeting> meeting) {
  std::optional<Error> error;
  try {
    if (meeting) session_ = std::make_unique<Session>(std::move(*meeting), layout_, options_);
    const std::uint64_t version = session_->announce(0, options_.patience);
    versions_[other()] = 0;
    // Besides the program's memory the version before lies where the new one goes.
    session_->run({}, buffers_[other()].pointers(),
                  targets_.empty() ? pointers() : std::span<void* const>());
    versions_[other()] = version;
  } catch (const Error& e) {
    error = session_ ? session_->named(e) : e;
    versions_[other()] = 0;
    end_session(error);
  }
  undecided_ = !error;
  error = agree(error);
  undecided_ = false;
  return error;
}

std::uint64_t Receiver::receive() {
  tell_of_death();
  if (undecided_) settle();
  for (;;) {
    std::optional<Meeting> meeting;
    if (!session_) {
      const auto patience = options_.patience.count() > 0 ? options_.patience : kEver;
      meeting = meetings_.ask(std::chrono::steady_clock::now() + patience);
    }
    const auto error = take(std::move(meeting));
    if (!error) break;
    versions_[other()] = 0;
    leave();
    // Senders that have left may come back, or others come.
    if (error->code() != ErrorCode::aborted || must_stop()) throw *error;
  }
  turn();
  std::optional<Error> end;
  try {
    end = session_->confirm();
  } catch (const Error& e) {
    end = e;
  }
  after_version(end);
  return version();
}

void Receiver::turn() {
  ++turns_;
  if (targets_.empty()) {
    current_ = other();
    return;
  }
  const auto bytes = layout_.bytes_of(job_.rank());
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    if (bytes[b] > 0) device().copy(targets_[b], buffers_[other()].pointers()[b], bytes[b]);
  }
  device().synchronize(device().record(device().current()));
  versions_[current_] = versions_[other()];
}

/// Collective over `job_`: some ranks may have turned to a version that others only know to have.
std::uint64_t Receiver::settle() {
  std::uint64_t most = turns_;
  job_.all_reduce(&most, &most, 1, DataType::uint64, ReduceKind::max);
  if (std::exchange(undecided_, false) && turns_ < most) {
    turn();
  } else {
    versions_[other()] = 0;
  }
  return version();
}

std::uint64_t Receiver::resume(Communicator& job) {
  death_.reset();
  const std::optional<Error> death = job_.error();
  end_session(death && death->rank() >= 0 ? named_error(*death, death->rank(), "receiving")
                                          : death);
  job_ = job.split(0, job.rank());
  meetings_.use(job_);
  return settle();
}

}  // namespace tutti::parallel::weights
