#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <random>

#include "bootstrap/environment.h"
#include "comm/bind.h"
#include "comm/device_call.h"
#include "comm/elastic_message.h"
#include "comm/impl.h"
#include "comm/shrink.h"
#include "comm/started_calls.h"
#include "core/as_error.h"
#include "core/fork.h"
#include "core/settings.h"
#include "core/wait.h"
#include "core/window_memory.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti {
namespace {

/// The rank is made on this thread, or on another one in its place.
Options with_gpu(Options options) {
  if (options.gpu < 0) options.gpu = current_gpu();
  return options;
}

void check_rank(int rank, int size) {
  if (size < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a communicator of {} ranks makes no sense: it has one or more", size));
  }
  if (rank < 0 || rank >= size) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} of {} ranks makes no sense: ranks are 0 to {}", rank, size, size - 1));
  }
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    leave();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Communicator::~Communicator() { leave(); }

Communicator Communicator::from_environment(const Options& options) try {
  options.check();
  if (setting_integer(kElasticVariable) >= 0) {
    throw Error(ErrorCode::invalid_usage,
                "from_environment() in a job of `tutti run --elastic`, whose ranks come and go: "
                "use ElasticJob and its join() (docs/elastic.md), or start the program with `tutti "
                "run -n`");
  }
  const Placement placement = placement_from_environment();
  if (placement.size == 1) return std::move(create_local(1, options).front());
  const SharedId id = unique_id_from_environment(placement, options.rendezvous_timeout);
  Communicator made = create(id.id, placement.rank, placement.size, options);
  forget(id);
  return made;
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Communicator Communicator::create(const UniqueId& id, int rank, int size,
                                  const Options& options) try {
  check_rank(rank, size);
  options.check();
  const Options mine = with_gpu(options);
  return Communicator(std::make_unique<Impl>(open_session(id, rank, size, mine), mine));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

std::vector<Communicator> Communicator::create_local(int size, const Options& options) {
  check_rank(0, size);
  return create_local(std::vector<Options>(static_cast<std::size_t>(size), options));
}

std::vector<Communicator> Communicator::create_local(const std::vector<Options>& options) try {
  check_rank(0, static_cast<int>(options.size()));
  std::vector<Options> each;
  for (const Options& o : options) {
    o.check();
    each.push_back(with_gpu(o));
  }
  std::vector<Session> sessions = open_local_sessions(each);
  std::vector<Communicator> all;
  for (std::size_t r = 0; r < each.size(); ++r) {
    all.push_back(Communicator(std::make_unique<Impl>(std::move(sessions[r]), each[r])));
  }
  return all;
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

int Communicator::rank() const { return impl().group->rank(); }
int Communicator::size() const { return impl().group->size(); }
std::string Communicator::transports() const { return impl().group->transports(); }

void Communicator::run(const Call& call) try {
  Impl& i = impl();
  i.check_process();
  if (!group_is_open()) return i.run(call);
  const Impl::Turn turn(i.turns);
  i.or_tell([&] { i.check(call); });
  keep_for_group(i, call);
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

void Communicator::run(const Call& call, void* stream) try {
  Impl& i = impl();
  i.check_process();
  {
    const Impl::Turn turn(i.turns);
    check_on_device(i, call);
    if (group_is_open()) return keep_for_group(i, call, stream);
    i.check_alone(call);
  }
  const DeviceCallOn one{&i, &call, stream};
  run_on_device({&one, 1});
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Future Communicator::start(const Call& call) try {
  Impl& i = impl();
  i.check_process();
  const auto turn = i.turn_to_start();
  i.check_alone(call);
  if (group_is_open()) {
    throw Error(ErrorCode::invalid_usage,
                "start() inside of a group(): calls of a group are blocking ones");
  }
  return Future(i.started_calls().start(call));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

void Communicator::withdraw(const Future& recv) {
  Impl& i = impl();
  i.check_process();
  if (i.started && !recv.ready()) i.started->withdraw(*recv.state());
}

void Communicator::refuse_size(const char* call, const char* buffer, std::size_t has,
                               std::size_t each, std::size_t ranks) {
  const std::string why =
      fmt::format("{}: the {} has {} elements, but needs {}{}", call, buffer, has, each * ranks,
                  ranks > 1 ? fmt::format(" ({} for each of {} ranks)", each, ranks) : "");
  impl().tell_refusal(why);
  throw Error(ErrorCode::invalid_argument, why);
}

const Options& Communicator::options() const { return impl().options; }

Communicator Communicator::split(int color, int key, const std::optional<Options>& given) try {
  Impl& i = impl();
  const Options& options = given ? *given : i.options;
  refuse_to_meet("split()");
  i.or_tell([&] { options.check(); });
  struct Entry {
    std::int64_t color, key;
    std::uint64_t segment;
  };
  // Random, so that the segments of any two communicators differ.
  std::random_device random;
  const Entry mine{color, key, static_cast<std::uint64_t>(random()) << 32 | random()};
  std::vector<Entry> all(static_cast<std::size_t>(size()));
  const Impl::Turn turn = i.turn_alone();
  // The same on all ranks of this color, also where it turns out here alone that there will be
  // none.
  const std::uint64_t id =
      mix(mix(i.group->id(), ++i.splits), static_cast<std::uint64_t>(static_cast<unsigned>(color)));
  try {
    i.run_in_turn({.collective = Collective::all_gather,
                   .in = &mine,
                   .out = all.data(),
                   .count = sizeof(Entry),
                   .type = DataType::uint8,
                   .label = Signature::kSplit});
  } catch (const Error& e) {
    i.group->refuse(id, e.code() == ErrorCode::peer_lost ? e.rank() : -1);
    throw;
  }
  if (color < 0) return {};
  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)].color == color) chosen.push_back(r);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  std::vector<std::uint64_t> keys;
  for (const int r : chosen) keys.push_back(all[static_cast<std::size_t>(r)].segment);
  try {
    return Communicator(i.part(chosen, std::move(keys), id, options));
  } catch (const Error& e) {
    // A rank has given up on another one; all of this communicator hear in a moment why.
    const bool is_own = e.code() == ErrorCode::system;  // a reason of this rank's
    const auto soon = deadline_after(std::chrono::seconds(e.rank() < 0 && !is_own ? 1 : 0));
    wait_until(soon, [&] { return i.group->liveness().failed(); });
    if (e.rank() < 0 && !is_own && i.group->liveness().failed()) {
      i.group->liveness().throw_failure();
    }
    throw;
  }
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Communicator Communicator::shrink(std::span<const int> excluded,
                                  const std::optional<Options>& given) try {
  Impl& i = impl();
  const Options& options = given ? *given : i.options;
  i.check_process();
  refuse_to_meet("shrink()");
  options.check();
  for (const int r : excluded) {
    if (r < 0 || r >= size()) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("shrink: rank {} cannot be excluded: ranks are 0 to {}", r, size() - 1));
    }
    if (r != rank()) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} is excluded from the shrunken communicator, so it must not "
                            "call shrink()",
                            rank()));
  }
  const Impl::Turn turn = i.turn_alone();
  Shrinking shrinking = Shrinking::without(excluded, size());
  const std::vector<int>& survivors = shrinking.survivors;
  if (options.quorum && !shrinking.is_quorum()) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("shrink: rank {} may not go on: {} of {} ranks are no majority, nor half "
                    "of them with rank 0 (TUTTI_QUORUM), and the others may be going on. End "
                    "it; if they are not, start the job again",
                    rank(), survivors.size(), size()));
  }
  std::uint64_t& times = i.shrinks[survivors];
  shrinking.times = ++times;
  std::uint64_t who = 0;
  for (const int r : survivors) who = mix(who, static_cast<std::uint64_t>(r));
  const std::uint64_t id = mix(mix(i.group->id(), who), times);
  try {
    const auto calls_with = [&](const std::vector<int>& ranks) {
      const auto found = i.shrinks.find(ranks);
      return found == i.shrinks.end() ? 0 : found->second;
    };
    meet_to_shrink(*i.group, shrinking, calls_with, deadline_after(options.rendezvous_timeout));
  } catch (const Error& e) {
    // Others may have seen this rank before it saw that one of them is gone.
    if (e.code() == ErrorCode::peer_lost) i.group->refuse(id, e.rank());
    if (e.code() == ErrorCode::system) i.group->refuse(id, -1);
    --times;  // nobody has gone on, so it may be tried again
    throw;
  }
  std::vector<std::uint64_t> keys;
  // Every survivor can compute them, so that nothing has to be exchanged.
  for (const int r : survivors) keys.push_back(mix(mix(i.group->key(r), who), times));
  return Communicator(i.part(survivors, std::move(keys), id, options));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

void Communicator::use_plan(std::string_view text) try {
  Impl& i = impl();
  const Impl::Turn turn = i.turn_alone();
  std::unique_ptr<ReadyPlan> ready = i.plans.prove(text);
  // The links that lead here: where there is no memory for them, that is better known now.
  for (const auto& lane : ready->plan.lanes) {
    for (const Step& step : lane) {
      for (const Operand& o : ready->plan.sources(step)) {
        if (o.is_link()) i.group->links().receiving(o.rank, o.channel);
      }
    }
  }
  i.forget_calls();  // they refer to the plan that is replaced
  i.plans.use(std::move(ready));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

std::chrono::nanoseconds Communicator::predict(const Call& call) {
  Impl& i = impl();
  i.check_process();
  const Impl::Turn turn(i.turns);
  if (call.collective == Collective::send_recv) {
    throw Error(ErrorCode::invalid_argument,
                "predict() is for collectives: send and recv have no plan");
  }
  check_call(call, rank(), size());
  const BufferSizes sizes = buffer_sizes(call, rank(), size());
  if (moves_nothing(call, sizes)) return std::chrono::nanoseconds(0);
  const auto is_window = [](const void* buffer, std::size_t bytes) {
    return buffer == nullptr || bytes == 0 || find_window(buffer, bytes).id != 0;
  };
  Access access = Access::tmp;
  if (i.group->one_process() || (is_window(call.in, sizes.in) && is_window(call.out, sizes.out))) {
    access = Access::windows;
  } else if (i.group->cma_everywhere()) {
    access = Access::copies;
  }
  const double ns = i.plans.predict(signature_of(call), sizes.largest, access);
  return std::chrono::nanoseconds(std::llround(ns));
}

std::optional<Error> Communicator::error() const {
  impl().check_process();
  RankGroup& g = *impl().group;
  Liveness& liveness = g.liveness();
  if (!liveness.failed()) {
    note_device_failure(g);
    liveness.check_peers("being asked for failures");
  }
  if (!liveness.failed()) return std::nullopt;
  const Failure f = liveness.failure();
  return Error(f.code, f.text, f.rank);
}

void Communicator::abort(std::string_view reason) {
  impl().check_process();
  impl().end(reason.empty() ? fmt::format("rank {} aborted the communicator", rank())
                            : fmt::format("rank {} aborted the communicator: {}", rank(), reason));
}

void Communicator::destroy() {
  if (impl_ && !impl_->group->is_inherited() && impl_->has_callers()) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("rank {}: destroy() while another thread is in a call of this "
                            "communicator: wait for its end, or abort() first",
                            impl_->group->rank()));
  }
  leave();
}

void Communicator::leave() noexcept {
  if (!impl_) return;
  if (!impl_->end_callers()) return abandon(std::shared_ptr<Impl>(std::move(impl_)));
  if (group_is_open()) return leave_after_group(std::move(impl_));
  // A callback may have the last hold of it, but cannot wait.
  if (impl_->started && is_engine_thread() && !impl_->group->is_inherited()) {
    impl_->started->destroy_when_idle(impl_);
  }
  impl_.reset();
}

}  // namespace tutti
