#include "parallel/weights/job_side.h"

#include <fmt/format.h>

#include <utility>

#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {

JobSide::JobSide(Communicator& job, reshard::Layout layout, reshard::Side side,
                 std::shared_ptr<Place> place, WeightsOptions options)
    : job_(job.split(0, job.rank())),
      layout_(std::move(layout)),
      options_(options),
      meetings_(job_, std::move(place), options.meeting),
      side_(side == reshard::Side::from ? "sending" : "receiving") {
  layout_.check(side);
}

void JobSide::end_session(const std::optional<Error>& death) {
  if (session_) session_->end(fmt::format("the {} job has left", side_), death);
  session_.reset();
}

std::optional<Error> JobSide::agree(const std::optional<Error>& mine) {
  try {
    return agree_on_outcome(job_, mine, side_);
  } catch (const Error& death) {
    end_session(death);
    throw;
  }
}

void JobSide::after_version(const std::optional<Error>& end) {
  const auto agreed = agree(end ? std::optional(session_->named(*end)) : end);
  if (agreed) end_session(agreed);
  if (agreed && agreed->code() == ErrorCode::peer_lost) death_ = agreed;
}

void JobSide::tell_of_death() {
  if (death_) throw *std::exchange(death_, std::nullopt);
}

}  // namespace tutti::parallel::weights
