// From a call to its run: what was prepared before is looked up, numbered, bound and run.
#include "comm/impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/device_call.h"
#include "comm/series.h"
#include "comm/started_calls.h"
#include "comm/window_impl.h"
#include "core/as_error.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/wait.h"
#include "core/window_memory.h"
#include "execute/host/placement.h"

namespace tutti {
namespace {

/// From here on one copy by the receiver beats the two of slots: where ranks share cores, and where
/// each has a core. The latter if the cores share a cache: else lines that another core has written
/// take so long that the two copies of slots, which overlap, are faster
/// (docs/experiments.md#pulled-messages).
constexpr std::size_t kPulledWhereCrowded = std::size_t{256} << 10;
constexpr std::size_t kPulledByCore = std::size_t{64} << 10;
/// Whether they share one, the link's clock knows. So these go through slots: the first ones, and
/// one of so many.
constexpr std::uint32_t kFirstTimed = 8, kTimedOneOf = 32;

/// With threads that have a turn and do not let go of it, or do not come back.
constexpr auto kPatience = std::chrono::seconds(5);

WaitPolicy policy_for(const Geometry& geometry, std::size_t ranks_here, const Options& options) {
  WaitPolicy policy;
  const auto cores = static_cast<std::size_t>(std::max<std::uint64_t>(geometry.cores_here, 1));
  policy.crowded = ranks_here > cores;
  policy.ranks_of_a_core = static_cast<int>((ranks_here + cores - 1) / cores);
  policy.timeout = options.timeout;
  policy.report_after = options.report_after;
  const std::int64_t wish = setting_integer("TUTTI_SPIN");
  // Enough to cover an exchange with a running peer, or a switch between two on another core.
  policy.spins = wish < 0 ? 100 : static_cast<int>(wish);
  return policy;
}

Platform platform_of(const Geometry& g, int ranks) {
  Platform p{g.machine, ranks,        static_cast<int>(g.cores),
             g.shape,   g.tile_bytes, least_piece(g, ranks)};
  p.domains = g.domains;
  p.hosts = g.hosts;
  return p;
}

bool same_counts(const Call& a, const Call& b) {
  return std::ranges::equal(a.in_counts, b.in_counts) &&
         std::ranges::equal(a.out_counts, b.out_counts) &&
         std::ranges::equal(a.in_offsets, b.in_offsets) &&
         std::ranges::equal(a.out_offsets, b.out_offsets);
}

/// Whether two calls of a collective differ in nothing but addresses, the scalar of the operator,
/// the label and the counts of uneven blocks.
inline bool same_kind(const Call& a, const Call& b) {
  return a.count == b.count && a.collective == b.collective && a.type == b.type &&
         a.op.kind == b.op.kind && a.op.scalar_type == b.op.scalar_type && a.root == b.root &&
         a.compressed == b.compressed;
}

/// Whether they differ in nothing but addresses, the scalar and the label.
inline bool same_shape(const Call& a, const Call& b) {
  return same_kind(a, b) && (!is_v(a.collective) || same_counts(a, b));
}

}  // namespace

Communicator::Impl::Impl(Session session, const Options& o)
    : options(o),
      geometry(session.geometry),
      group(std::move(session.group)),
      plans(group->rank(), platform_of(geometry, group->size()),
            gpu_layouts(geometry.gpus, geometry.hosts), o.algorithm, geometry.windows,
            {geometry.round_once, geometry.invariant}, group->blocks().first_here().findings,
            group->cma_everywhere() ? Access::copies : Access::tmp),
      policy(policy_for(geometry, group->ranks_here().size(), o)),
      turns([this] { group->blocks().wake_own(); },
            [] { return is_engine_thread() ? deadline_after(kPatience) : Deadline::max(); }),
      operation(*group, workspace),
      agreement(*group, workspace),
      all_messages(2 * static_cast<std::size_t>(group->size())),
      membership(std::move(session.membership)) {
  agreement_plan.plan =
      plans.generate(plans.choose({Collective::all_reduce, 1, DataType::uint8, Access::none}), {});
  Call call;
  call.collective = Collective::all_reduce;
  call.count = 1;
  call.type = DataType::uint8;
  call.op = ReduceKind::min;
  Tables none;
  agreement_binding = bind_call(call, *group, geometry, agreement_plan, none);
  publish_core(group->control());  // before the first wait
}

Communicator::Impl::~Impl() {
  if (group->is_inherited()) {  // their threads are the parent's, and so is the GPU
    abandon(std::move(started));
    abandon(std::move(team));
    abandon(std::move(far_windows));
  } else {
    started.reset();  // before what it uses
    // Of calls that are over by now.
    wait_until(
        deadline_after(kPatience), [&] { return blocked.load(std::memory_order_acquire) == 0; },
        OnStop::goes_on);
  }
  while (!windows.empty()) windows.back()->end(WindowState::left);
  if (group->is_inherited()) return;
  if (team) leave_devices(*this);
}

void Communicator::Impl::throw_inherited() const {
  throw Error(ErrorCode::invalid_usage,
              fmt::format("rank {} of this communicator is process {}, of which this one is a "
                          "child: after fork() only the parent can use it; make another one here",
                          group->rank(), group->host_peers().own_pid()));
}

Communicator::Impl::Turn Communicator::Impl::turn_to_start() {
  // A thread that waits for the end of all started calls has its turn meanwhile.
  return is_engine_thread() && has_started() ? Turn() : Turn(turns);
}

bool Communicator::Impl::end_callers() {
  // A callback's thread is the one for which they wait.
  const auto is_over = [&] { return is_engine_thread() ? !turns.are_taken() : !has_callers(); };
  if (group->is_inherited() || is_over()) return true;
  end(fmt::format("rank {} destroys the communicator while another thread of it is in a call",
                  group->rank()));
  if (wait_until(deadline_after(kPatience), is_over, OnStop::goes_on)) return true;
  log().warn(
      "rank {} destroys the communicator while another thread of it is in a call, which does not "
      "end: its memory stays",
      group->rank());
  return false;
}

void Communicator::Impl::check(const Call& call) const {
  check_process();
  group->liveness().throw_if_failed();
  check_call(call, group->rank(), group->size());
  if (geometry.round_once || geometry.invariant) plans.check(signature_of(call));
}

void Communicator::Impl::check_alone(const Call& call) const {
  or_tell([&] {
    check(call);
    if (call.collective != Collective::send_recv || call.peer != group->rank()) return;
    throw Error(ErrorCode::invalid_usage,
                fmt::format("rank {} {} itself outside of a group: put the send and the recv into "
                            "one group()",
                            group->rank(), call.sends ? "sends to" : "receives from"));
  });
}

void Communicator::Impl::drain_started() {
  if (has_started()) started->drain();
}

StartedCalls& Communicator::Impl::started_calls() {
  if (!started) started = std::make_unique<StartedCalls>(*this);
  return *started;
}

PreparedCall& Communicator::Impl::look_up(const Call& call) {
  const int rank = group->rank();
  const int ranks = group->size();
  if (newest == nullptr || !same_shape(call, newest->call.call())) {
    Signature signature = signature_of(call);
    signature.label = 0;
    std::unique_ptr<PreparedCall>& slot = prepared[signature.hash() % kPrepared];
    if (!slot || !same_shape(call, slot->call.call())) {
      or_tell([&] { check(call); });
      if (slot && call.collective == Collective::all_to_all_v &&
          same_kind(call, slot->call.call())) {
        // No rank knows all counts, so neither the plan nor the signature depends on them.
        slot->call = KeptCall(call);
        slot->bound = nullptr;
      } else {
        slot = std::make_unique<PreparedCall>(call);
        slot->binding.signature = signature;
      }
      slot->sizes = buffer_sizes(call, rank, ranks);
    }
    if (newest != slot.get()) repeats = 0;
    newest = slot.get();
  }
  if (Signature& signature = newest->binding.signature; signature.label != call.label) {
    or_tell([&] { check(call); });
    signature.label = call.label;
    newest->hash = signature.hash();
    repeats = 0;
  }
  or_tell([&] { check_addresses(call, newest->sizes, rank, ranks); });
  return *newest;
}

inline bool Communicator::Impl::repeats_newest(const Call& call) const {
  return newest != nullptr && newest->bound != nullptr && same_shape(call, newest->call.call()) &&
         call.label == newest->binding.signature.label && call.in == newest->binding.in.base &&
         call.out == newest->binding.out.base;
}

inline const Binding& Communicator::Impl::bind_again(const Call& call) {
  Binding& binding = newest->binding;
  binding.signature.sequence = ++sequence;
  if (is_v(call.collective)) {
    publish_counts(group->control(), sequence, call.in_counts, call.out_counts);
  }
  binding.op.scalar = call.op.scalar;
  binding.timeout = call.timeout;
  binding.left_out = call.left_out;
  binding.left_out_times = call.left_out_times;
  binding.tag = tag_of(newest->hash, sequence);
  binding.unchanged = ++repeats > kRecords;
  newest->windows.count();
  return binding;
}

bool Communicator::Impl::begin(PreparedCall& p, const Call& call) {
  Signature& signature = p.binding.signature;
  signature.sequence = ++sequence;
  if (is_v(call.collective)) {
    publish_counts(group->control(), sequence, call.in_counts, call.out_counts);
  }
  if (p.plan != nullptr) return true;
  if (moves_nothing(call, p.sizes)) {
    publish_signature(group->control(), signature);
    repeats = 0;
    return false;
  }
  p.plan = &plans.get(signature, p.sizes.largest, Access::windows);
  signature.detail = mix(signature.detail, p.plan->identity);
  p.hash = signature.hash();
  return true;
}

const Binding& Communicator::Impl::bind_agreement(const PreparedCall& p, const Call& call) {
  const auto inside = [](const void* buffer, std::size_t bytes) {
    return bytes == 0 || find_window(buffer, bytes).id != 0;
  };
  in_windows = inside(call.in, p.sizes.in) && inside(call.out, p.sizes.out) ? 1 : 0;
  Binding& b = agreement_binding;
  b.in.base = reinterpret_cast<std::byte*>(&in_windows);
  b.out.base = reinterpret_cast<std::byte*>(&all_in_windows);
  b.signature = p.binding.signature;
  b.timeout = call.timeout;
  // The same operation, so that calls that do not match are found here already; another message.
  b.tag = ~tag_of(p.hash, sequence);
  return b;
}

void Communicator::Impl::bind_anew(PreparedCall& p, const Call& call, const ReadyPlan& plan) {
  const Signature signature = p.binding.signature;
  p.binding = bind_call(call, *group, geometry, plan, p.tables);
  p.binding.signature = signature;
  p.bound = &plan;
}

const Binding& Communicator::Impl::bind(PreparedCall& p, const Call& call) {
  Binding& binding = p.binding;
  const ReadyPlan* plan = p.plan;
  if (agrees(p)) p.windows.found(all_in_windows != 0);
  p.windows.count();
  if (plan->path.buffers && !p.windows.answer() && !group->one_process()) {
    const Access access = group->cma_everywhere() ? Access::copies : Access::tmp;
    plan = &plans.get(binding.signature, p.sizes.largest, access);
  }
  if (plan != p.bound) bind_anew(p, call, *plan);
  binding.op.scalar = call.op.scalar;  // the rest of it belongs to the shape
  binding.timeout = call.timeout;
  binding.left_out = call.left_out;
  binding.left_out_times = call.left_out_times;
  binding.in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
  binding.out.base = static_cast<std::byte*>(call.out);
  binding.tag = tag_of(p.hash, sequence);
  binding.unchanged = ++repeats > kRecords && &p == newest;
  return binding;
}

Communicator::Impl::Messages& Communicator::Impl::messages(int peer, bool sends) {
  auto& m = all_messages[2 * static_cast<std::size_t>(peer) + (sends ? 1 : 0)];
  if (!m) m = std::make_unique<Messages>(*group, workspace);
  return *m;
}

inline bool Communicator::Impl::may_be_pulled(const Call& call) const {
  return call.sends &&
         call.count * size_of(call.type) >=
             (policy.crowded ? kPulledWhereCrowded : kPulledByCore) &&
         geometry.windows && group->same_host(call.peer);
}

inline Communicator::Impl::Messages* Communicator::Impl::repeated_message(const Call& call) const {
  if (call.peer < 0 || call.peer >= group->size() || call.peer == group->rank()) return nullptr;
  Messages* const m =
      all_messages[2 * static_cast<std::size_t>(call.peer) + (call.sends ? 1 : 0)].get();
  const bool repeated = m != nullptr && !may_be_pulled(call) && m->binding.plan != nullptr &&
                        m->binding.type == call.type && m->binding.in.count == call.count &&
                        m->binding.signature.label == call.label && m->binding.in.base == call.in &&
                        m->binding.out.base == call.out;
  return repeated ? m : nullptr;
}

const Binding* Communicator::Impl::bind_if_repeated(const Call& call) {
  if (call.collective == Collective::send_recv) {
    Messages* const same = repeated_message(call);
    if (same == nullptr) return nullptr;
    same->binding.timeout = call.timeout;
    return &same->binding;
  }
  return repeats_newest(call) && !agrees(*newest) ? &bind_again(call) : nullptr;
}

bool Communicator::Impl::is_pulled(Messages& m, const Call& call) const {
  if (!may_be_pulled(call)) return false;
  const std::size_t bytes = call.count * size_of(call.type);
  if (!group->one_process() && find_window(call.in, bytes).id == 0) return false;
  if (policy.crowded) return true;
  Sender& link = *group->links().sending(call.peer, kMessageChannel).link;
  const bool timed = m.long_ones < kFirstTimed || m.long_ones % kTimedOneOf == 0;
  ++m.long_ones;
  if (timed) link.time_next();
  return !timed && !link.is_far();
}

const Binding& Communicator::Impl::bind_message(Messages& m, const Call& call) {
  Binding& b = m.binding;
  const bool pulled = is_pulled(m, call);
  if (b.plan == nullptr || b.type != call.type || b.in.count != call.count || b.pulled != pulled) {
    Tables none;
    b = bind_call(call, *group, geometry, plans.point_to_point(call.peer, call.sends, pulled),
                  none);
    b.signature = signature_of(call);
  }
  b.signature.label = call.label;
  b.tag = point_to_point_tag(call.type, call.count, call.label) | (pulled ? kPulledTag : 0);
  b.timeout = call.timeout;
  b.in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
  b.out.base = static_cast<std::byte*>(call.out);
  return b;
}

void Communicator::Impl::run(const Call& call) {
  Turn turn(turns);
  const bool may_repeat = !has_started() && !team && !group->liveness().failed();
  const Binding* const again = may_repeat ? bind_if_repeated(call) : nullptr;
  if (again == nullptr) return run(call, turn);
  // What a loop repeats needs no series.
  const bool is_message = call.collective == Collective::send_recv;
  Job job(is_message ? messages(call.peer, call.sends).operation : operation, policy);
  Future moved;
  try {
    const std::atomic<int>* const wanted[] = {&turns.wanted()};
    if (run_unless_wanted(job, *again, wanted)) return;
    Job* jobs[] = {&job};
    if (is_engine_thread() && run_unless_wanted(jobs, {}).empty()) return;
    const Series::Begun begun{&job.operation(), nullptr, job.standstill()};
    moved = Future(started_calls().start(call, begun));
  } catch (const std::exception& e) {
    throw fail_with(as_error(e));
  } catch (...) {  // pthread_cancel(): this thread goes on to end
    fail_unwound();
    throw;
  }
  wait_without(turn, *this, {&moved, 1});
}

void Communicator::Impl::forget_calls() {
  for (auto& p : prepared) p.reset();
  newest = nullptr;
}

Error Communicator::Impl::fail_with(const Error& thrown) {
  if (!group->liveness().failed()) {
    // A dead peer is the better explanation of whatever went wrong.
    group->liveness().check_peers(
        fmt::format("running an operation that failed: {}", thrown.what()));
    group->liveness().fail(
        {thrown.code(), thrown.rank(), fmt::format("rank {}: {}", group->rank(), thrown.what())});
  }
  abort_on_device(*group);
  group->wait_until_untouched();
  try {
    group->liveness().throw_failure();
  } catch (const Error& failure) {
    return failure;
  }
}

void Communicator::Impl::fail_unwound() noexcept {
  try {
    fail_with({ErrorCode::aborted,
               "its thread was cancelled (pthread_cancel), or ended, in the middle of a call",
               group->rank()});
  } catch (const std::exception&) {  // there is no memory
  }
}

std::unique_ptr<Communicator::Impl> Communicator::Impl::part(const std::vector<int>& ranks,
                                                             std::vector<std::uint64_t> keys,
                                                             std::uint64_t id,
                                                             const Options& its_options) {
  RankGroup::Ranks its_ranks{0, {}, std::move(keys), id};
  const Options mine = inherited(its_options);
  for (const int r : ranks) {
    if (r == group->rank()) its_ranks.rank = static_cast<int>(its_ranks.members.size());
    its_ranks.members.push_back(group->member(r));
  }
  Geometry its_geometry = geometry;
  its_geometry.domains = geometry.domains.among(ranks);
  its_geometry.hosts = geometry.hosts.among(ranks);
  its_geometry.gpus.clear();
  for (const int r : ranks) its_geometry.gpus.push_back(geometry.gpus[static_cast<std::size_t>(r)]);
  try {
    return std::make_unique<Impl>(
        open_subsession(*group, its_geometry, membership, std::move(its_ranks), mine), mine);
  } catch (const std::exception& thrown) {
    const Error e = as_error(thrown);
    // The others may wait for this rank.
    const bool is_lost = e.code() == ErrorCode::peer_lost && e.rank() >= 0 &&
                         static_cast<std::size_t>(e.rank()) < ranks.size();
    group->refuse(id, is_lost ? ranks[static_cast<std::size_t>(e.rank())] : -1);
    // It counts the ranks of a communicator that has not come to be; the caller knows this one.
    if (e.rank() < 0 || static_cast<std::size_t>(e.rank()) >= ranks.size()) throw Error(e);
    const int culprit = ranks[static_cast<std::size_t>(e.rank())];
    const std::string with = culprit == group->rank() ? "" : fmt::format(" with rank {}", culprit);
    throw Error(e.code(),
                fmt::format("rank {} cannot make a new communicator{}: there, {}", group->rank(),
                            with, e.what()),
                culprit);
  }
}

}  // namespace tutti
