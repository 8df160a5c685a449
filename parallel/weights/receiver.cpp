#include "parallel/weights/receiver.h"

#include <tutti/core/background.h>
#include <tutti/core/error.h>

#include <chrono>
#include <optional>
#include <utility>

#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {

Receiver::Receiver(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
                   WeightsOptions options)
    : job_(job.split(0, job.rank())),
      layout_(std::move(layout)),
      options_(options),
      meetings_(job_, std::move(place), options.meeting) {
  layout_.check(reshard::Side::to);
  for (reshard::Buffers& set : buffers_) set = reshard::Buffers(layout_, job_.rank());
}

Receiver::~Receiver() { leave(); }

void Receiver::leave() { end_session(std::nullopt); }

void Receiver::end_session(const std::optional<Error>& death) {
  if (session_) session_->end("the receiving job has left", death);
  session_.reset();
}

/// The next version into the set of buffers that is not in use. An error of any rank is one of all.
std::optional<Error> Receiver::take(std::optional<Meeting> meeting) {
  std::optional<Error> error;
  try {
    if (meeting) session_ = std::make_unique<Session>(std::move(*meeting), layout_, options_);
    const std::uint64_t version = session_->announce(0, options_.patience);
    versions_[other()] = 0;
    session_->run({}, buffers_[other()].pointers(), pointers());
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

/// As agree_on_outcome(); the senders hear of a death in this job.
std::optional<Error> Receiver::agree(const std::optional<Error>& mine) {
  try {
    return agree_on_outcome(job_, mine, "receiving");
  } catch (const Error& death) {
    end_session(death);
    throw;
  }
}

std::uint64_t Receiver::receive() {
  if (death_) throw *std::exchange(death_, std::nullopt);
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
  // The version is good; the next receive() says who has died since.
  end = agree(end ? std::optional(session_->named(*end)) : end);
  if (end) end_session(end);
  if (end && end->code() == ErrorCode::peer_lost) death_ = end;
  return version();
}

void Receiver::turn() {
  current_ = other();
  ++turns_;
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
