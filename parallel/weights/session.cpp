#include "parallel/weights/session.h"

#include <fmt/format.h>
#include <tutti/core/error.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/number.h"
#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {
namespace {

// Coded messages are short, so more of them are under way at a time.
constexpr int kSlots = 8;
// Both paces are measured in milliseconds, perhaps beside other work.
constexpr double kClearly = 2;

std::string text_of_options(const WeightsOptions& o) {
  return fmt::format("{} {} {} {} {}", o.ways.changes, o.ways.planes, o.always, o.message_bytes,
                     o.prove);
}

/// The fields that text_of_options() has.
WeightsOptions options_from(std::string_view text) {
  WeightsOptions o;
  for (bool* const flag : {&o.ways.changes, &o.ways.planes, &o.always}) {
    *flag = take_word(text) == "true";
  }
  o.message_bytes = parse_number<std::uint64_t>(take_word(text)).value_or(o.message_bytes);
  o.prove = take_word(text) == "true";
  return o;
}

/// A layout of a job's ranks as one of all ranks of both jobs, of which the first has number `at`.
reshard::Layout in_both_jobs(reshard::Layout layout, int at, int all) {
  layout.ranks = all;
  for (reshard::TensorLayout& tensor : layout.tensors) {
    for (reshard::Piece& piece : tensor.pieces) piece.rank += at;
  }
  return layout;
}

void check_ranks(const reshard::Layout& layout, int job, const char* which) {
  if (layout.ranks == job) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the layout of the {} job is for {} ranks, and the job has {}", which,
                          layout.ranks, job));
}

}  // namespace

Session::Session(Meeting meeting, const reshard::Layout& own, const WeightsOptions& options)
    : joint_(std::move(meeting.joint)), senders_(meeting.senders) {
  try {
    const WeightsOptions agreed =
        options_from(from_rank(joint_, 0, [&] { return text_of_options(options); }));
    reshard::Layout from, to;
    agree_on_layouts(own, from, to);
    plain_.emplace(
        joint_, std::move(from), std::move(to),
        reshard::ReshardOptions{.message_bytes = agreed.message_bytes, .prove = agreed.prove});
    add_coder(agreed);
  } catch (const Error& e) {
    end(e.what());
    throw named(e);
  }
}

Session::~Session() = default;

/// Each job's first rank says what its layout is.
void Session::agree_on_layouts(const reshard::Layout& own, reshard::Layout& from,
                               reshard::Layout& to) {
  const auto of_job = [&](int root) {
    return reshard::layout_from_json(from_rank(joint_, root, [&] { return to_json(own); }));
  };
  from = of_job(0);
  to = of_job(senders_);
  check_ranks(from, senders(), "sending");
  check_ranks(to, receivers(), "receiving");
  from = in_both_jobs(std::move(from), 0, joint_.size());
  to = in_both_jobs(std::move(to), senders_, joint_.size());
}

/// Where a link between hosts is slower than the coder, messages between hosts may be coded.
void Session::add_coder(const WeightsOptions& options) {
  if (!options.ways.changes && !options.ways.planes) return;
  const Pace link = options.always ? Pace() : measure_link(joint_, plain_->plan(), senders_);
  const bool slow = options.always || (link.known() && link.ns() > kClearly * measure_coder().ns());
  if (all_say_yes(joint_, !slow)) return;
  coder_ = std::make_shared<VersionCoder>(options.ways, link);
  reshard::Layout from = plain_->from(), to = plain_->to();
  reshard::ReshardOptions coded{.message_bytes = options.message_bytes, .prove = false};
  coded.coder = coder_;
  coded.slots = kSlots;
  coded.hosts = plain_->plan().hosts;
  coded_.emplace(joint_, std::move(from), std::move(to), coded);
  coder_->use(coded_->plan(), coded_->from(), coded_->to());
  if (!options.always) choice_.emplace(plain_time(link));
}

/// Collective: what the rank that sends longest over its link needs for a version, by its pace.
std::chrono::nanoseconds Session::plain_time(Pace link) {
  const reshard::Plan& plan = plain_->plan();
  double mine = 0, most = 0;
  for (const reshard::Message& m : plan.messages) {
    const bool far =
        plan.hosts[static_cast<std::size_t>(m.from)] != plan.hosts[static_cast<std::size_t>(m.to)];
    if (m.from == joint_.rank() && far) mine += static_cast<double>(m.bytes) * link.ns();
  }
  joint_.all_reduce(&mine, &most, 1, DataType::float64, ReduceKind::max);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(most));
}

std::uint64_t Session::announce(std::uint64_t version, std::chrono::nanoseconds patience) {
  std::array<std::uint64_t, 2> said{version, choice_ && choice_->coded() ? 1U : 0U};
  Call call;
  call.collective = Collective::broadcast;
  call.in = call.out = said.data();
  call.count = said.size();
  call.type = DataType::uint64;
  call.timeout = patience.count() > 0 ? patience : std::chrono::nanoseconds::max();
  joint_.run(call);
  goes_coded_ = coded_ && (!choice_ || said[1] != 0);
  announced_ = std::chrono::steady_clock::now();
  return said[0];
}

void Session::run(std::span<const void* const> sources, std::span<void* const> destinations,
                  std::span<void* const> present) {
  reshard::Reshard& way = goes_coded_ ? *coded_ : *plain_;
  const std::vector<const void*> no_sources(way.from().buffers.size());
  const std::vector<void*> no_destinations(way.to().buffers.size());
  if (goes_coded_) coder_->begin_version(last_was_coded_, present);
  way.run(sources.empty() ? no_sources : sources,
          destinations.empty() ? no_destinations : destinations);
  last_was_coded_ = goes_coded_;
}

std::optional<Error> Session::confirm() {
  all_say_yes(joint_, true);
  // All have it. The rank that came last, for which the others have waited, says how long it took.
  std::int64_t took = (std::chrono::steady_clock::now() - announced_).count();
  try {
    // A rank that leaves after that does not disturb others in the call before.
    joint_.all_reduce(&took, &took, 1, DataType::int64, ReduceKind::min);
  } catch (const Error& e) {
    return e;
  }
  if (choice_) choice_->took(std::chrono::nanoseconds(took));
  return std::nullopt;
}

void Session::end(std::string_view reason, const std::optional<Error>& death) {
  // A rank may be dead of which no call on this communicator has heard: that is the failure then.
  (void)joint_.error();
  const bool is_death = death && death->code() == ErrorCode::peer_lost && death->rank() >= 0;
  const std::string why = is_death ? std::string(death->what()) : std::string(reason);
  joint_.abort(why);
  if (plain_) plain_->abort(why);
  if (coded_) coded_->abort(why);
}

Error Session::named(const Error& error) const {
  if (error.rank() >= 0 && error.code() != ErrorCode::aborted) {
    const bool sends = error.rank() < senders_;
    return named_error(error, sends ? error.rank() : error.rank() - senders_,
                       sends ? "sending" : "receiving");
  }
  return death_in(error).value_or(error);
}

}  // namespace tutti::parallel::weights
