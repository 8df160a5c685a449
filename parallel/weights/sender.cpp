#include "parallel/weights/sender.h"

#include <tutti/core/background.h>
#include <tutti/core/error.h>

#include <optional>
#include <utility>

#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {

Sender::Sender(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
               WeightsOptions options)
    : job_(job.split(0, job.rank())),
      layout_(std::move(layout)),
      options_(options),
      meetings_(job_, std::move(place), options.meeting) {
  layout_.check(reshard::Side::from);
}

Sender::~Sender() { leave(); }

void Sender::leave() { end_session(std::nullopt); }

void Sender::end_session(const std::optional<Error>& death) {
  if (session_) session_->end("the sending job has left", death);
  session_.reset();
}

/// One version to the job that is there, or that asks; none: no job does.
std::optional<Error> Sender::try_to_send(std::uint64_t version,
                                         std::span<const void* const> sources, Sent& sent) {
  std::optional<Error> error, end;  // `end`: of the session, after this version
  try {
    if (meeting_) {
      session_ =
          std::make_unique<Session>(*std::exchange(meeting_, std::nullopt), layout_, options_);
    }
    session_->announce(version, options_.patience);
    const CodedTraffic before = session_->traffic() ? *session_->traffic() : CodedTraffic{};
    session_->run(sources, {});
    end = session_->confirm();
    sent.receivers = session_->receivers();
    if (const CodedTraffic* const now = session_->traffic()) {
      sent.plain = now->plain - before.plain;
      sent.coded = now->coded - before.coded;
    }
  } catch (const Error& e) {
    error = session_ ? session_->named(e) : e;
    end_session(error);
  }
  error = agree(error);
  if (error) return error;
  // The version is good; the next send() says who has died since.
  end = agree(end ? std::optional(session_->named(*end)) : end);
  if (end) end_session(end);
  if (end && end->code() == ErrorCode::peer_lost) death_ = end;
  return std::nullopt;
}

/// As agree_on_outcome(); the receivers hear of a death in this job.
std::optional<Error> Sender::agree(const std::optional<Error>& mine) {
  try {
    return agree_on_outcome(job_, mine, "sending");
  } catch (const Error& death) {
    end_session(death);
    throw;
  }
}

Sent Sender::send(std::uint64_t version, std::span<const void* const> sources) {
  if (version == 0) {
    throw Error(ErrorCode::invalid_argument,
                "send(): versions have any number but 0, which stands for none");
  }
  if (death_) throw *std::exchange(death_, std::nullopt);
  // Receivers that have left may be back already.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!session_) meeting_ = meetings_.answer();
    if (!session_ && !meeting_) break;
    Sent sent;
    const auto error = try_to_send(version, sources, sent);
    if (!error) return sent;
    leave();
    if (error->code() != ErrorCode::aborted || must_stop()) throw *error;
  }
  return {};
}

}  // namespace tutti::parallel::weights
