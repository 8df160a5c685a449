#include "parallel/weights/sender.h"

#include <tutti/core/background.h>
#include <tutti/core/error.h>

#include <optional>
#include <utility>

namespace tutti::parallel::weights {

Sender::Sender(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
               WeightsOptions options)
    : JobSide(job, std::move(layout), reshard::Side::from, std::move(place), options) {}

/// A GPU's memory as the host's, from which messages leave.
std::span<const void* const> Sender::on_host(std::span<const void* const> sources) {
  if (!device().is_gpu()) return sources;
  const auto bytes = layout_.bytes_of(job_.rank());
  if (sources.size() != bytes.size()) return sources;  // which is refused
  if (staged_.pointers().empty()) staged_ = reshard::Buffers(layout_, job_.rank());
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    if (bytes[b] > 0) device().read(staged_.pointers()[b], sources[b], bytes[b]);
  }
  return staged_.sources();
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
    session_->run(on_host(sources), {});
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
  after_version(end);
  return std::nullopt;
}

Sent Sender::send(std::uint64_t version, std::span<const void* const> sources) {
  if (version == 0) {
    throw Error(ErrorCode::invalid_argument,
                "send(): versions have any number but 0, which stands for none");
  }
  tell_of_death();
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
