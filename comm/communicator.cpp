#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "collectives/choose.h"
#include "comm/environment.h"
#include "comm/impl.h"
#include "core/settings.h"
#include "core/window_memory.h"

namespace tutti {
namespace {

/// How often a wait looks before it yields: enough to cover an exchange with a running peer, none
/// when the peer may need this core to run at all.
int spins_for(const Geometry& geometry, int ranks) {
  const std::int64_t wish = setting_integer("TUTTI_SPIN");
  if (wish >= 0) return static_cast<int>(std::min<std::int64_t>(wish, 1'000'000'000));
  return static_cast<std::uint64_t>(ranks) <= geometry.cores ? 100 : 0;
}

Call call_of(Collective collective, const void* in, void* out, std::size_t count, DataType type,
             ReduceOp op = {}, int root = 0) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.type = type;
  call.op = op;
  call.root = root;
  return call;
}

std::vector<std::size_t> copy(std::span<const std::size_t> s) { return {s.begin(), s.end()}; }

void check_rank(int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} of {} ranks makes no sense: ranks are 0 to size - 1", rank, size));
  }
}

}  // namespace

Communicator::Impl::Impl(Session session, const Options& o)
    : options(o),
      geometry(session.geometry),
      group(std::move(session.group)),
      plans(group->rank(), group->size(), o.algorithm, geometry.windows),
      policy{spins_for(geometry, group->size()), o.timeout, o.report_after},
      operation(*group, workspace),
      agreement(*group, workspace) {
  PlanRequest request;
  request.ranks = group->size();
  agreement_plan.plan = choose_algorithm(Collective::all_reduce, group->size(), 1, false)
                            .generate(request, group->rank());
}

Communicator::Impl::~Impl() {
  progress.reset();  // before what it uses
}

bool Communicator::Impl::repeats(const Call& call) const {
  return newest_plan != nullptr && call.count == newest.count &&
         call.collective == newest.collective && call.type == newest.type &&
         call.op.kind == newest.op.kind && call.root == newest.root;
}

void Communicator::Impl::check(const Call& call) const {
  if (group->failed()) group->throw_failure();
  check_call(call, group->rank(), group->size());
}

const Binding* Communicator::Impl::prepare(const Call& call, bool alone, Tables& into) {
  const int rank = group->rank();
  const int ranks = group->size();
  if (call.collective == Collective::send_recv) {
    const ReadyPlan& plan = plans.point_to_point(call.peer, call.sends);
    other_binding = bind_call(call, rank, ranks, geometry, plan, into);
    other_binding.signature = signature_of(call);
    other_binding.tag = point_to_point_tag(call.type, call.count);
    return &other_binding;
  }
  const bool same = repeats(call);
  if (!same) {
    newest_sizes = buffer_sizes(call, rank, ranks);
    newest_signature = signature_of(call);
    newest_plan = nullptr;
  }
  unchanged_calls = same ? unchanged_calls + 1 : 0;
  newest_signature.sequence = ++sequence;
  const std::size_t bytes = newest_sizes.largest;
  if (bytes == 0 && call.collective != Collective::barrier &&
      call.collective != Collective::all_to_all_v) {
    publish_signature(group->control(), newest_signature, false);
    return nullptr;
  }
  const ReadyPlan* plan = &plans.get(call.collective, bytes, newest_signature.root, true);
  if (!same) {
    newest_signature.detail = mix(newest_signature.detail, plan->identity);
    newest_hash = newest_signature.hash();
  }
  if (plan->windows && !group->one_process()) {
    const bool windows = alone ? agree_on_windows(call) : group->cma_everywhere();
    if (!windows) plan = &plans.get(call.collective, bytes, newest_signature.root, false);
  }
  const bool even = call.in_counts.empty() && call.out_counts.empty();
  Binding& binding = even ? newest_binding : other_binding;
  if (plan == newest_plan) {
    binding.op = call.op;
    binding.in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
    binding.out.base = static_cast<std::byte*>(call.out);
    newest.in = call.in;
    newest.out = call.out;
  } else {
    binding = bind_call(call, rank, ranks, geometry, *plan, into);
    newest = call;
    newest_plan = even ? plan : nullptr;
  }
  binding.signature = newest_signature;
  binding.tag = tag_of(newest_hash, sequence);
  binding.unchanged = unchanged_calls >= kRecords;
  return &binding;
}

bool Communicator::Impl::agree_on_windows(const Call& call) {
  const BufferSizes& sizes = newest_sizes;
  std::uint8_t mine = (sizes.in == 0 || find_window(call.in, sizes.in).id != 0) &&
                              (sizes.out == 0 || find_window(call.out, sizes.out).id != 0)
                          ? 1
                          : 0;
  std::uint8_t all = 0;
  Binding b;
  b.plan = &agreement_plan.plan;
  b.type = DataType::uint8;
  b.op = ReduceKind::min;
  b.in = {reinterpret_cast<std::byte*>(&mine), 1, {}, {}};
  b.out = {reinterpret_cast<std::byte*>(&all), 1, {}, {}};
  b.tiling = Tiling::of(1, 1, b.plan->header.pieces, geometry.shape.slot_bytes);
  b.signature = newest_signature;
  // The same operation, so that calls that do not match are found here already; another message.
  b.tag = ~tag_of(newest_hash, sequence);
  Job job(agreement, {&b, 1});
  Job* const jobs[] = {&job};
  run_to_completion(jobs, policy);
  return all != 0 || group->cma_everywhere();
}

Operation& Communicator::Impl::point_to_point(int peer, bool sends) {
  auto& op = point_to_points[{peer, sends}];
  if (!op) op = std::make_unique<Operation>(*group, workspace);
  return *op;
}

void Communicator::Impl::fail_with(const std::string& text, ErrorCode code, int culprit) {
  if (!group->failed()) {
    // A dead peer is the better explanation of whatever went wrong.
    group->check_peers("running an operation that failed: " + text);
    group->fail({code, culprit, fmt::format("rank {}: {}", group->rank(), text)});
  }
  group->throw_failure();
}

void Communicator::Impl::run_now(const Call& call) {
  if (group->failed()) group->throw_failure();
  const bool message = call.collective == Collective::send_recv;
  if (message && call.peer == group->rank()) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format(
            "rank {} {} itself outside of a group: put the send and the recv into one group()",
            group->rank(), call.sends ? "sends to" : "receives from"));
  }
  try {
    const Binding* binding = prepare(call, true, tables);
    if (binding == nullptr) return;
    Job job(message ? point_to_point(call.peer, call.sends) : operation, {binding, 1});
    Job* const jobs[] = {&job};
    run_to_completion(jobs, policy);
  } catch (const Error& e) {
    fail_with(e.what(), e.code(), e.rank());
  } catch (const std::exception& e) {
    fail_with(e.what(), ErrorCode::internal, -1);
  }
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::from_environment(const Options& options) {
  const Placement placement = placement_from_environment();
  if (placement.size == 1) return std::move(create_local(1, options).front());
  const UniqueId id = unique_id_from_environment(placement, options.rendezvous_timeout);
  return create(id, placement.rank, placement.size, options);
}

Communicator Communicator::create(const UniqueId& id, int rank, int size, const Options& options) {
  check_rank(rank, size);
  return Communicator(std::make_unique<Impl>(open_session(id, rank, size, options), options));
}

std::vector<Communicator> Communicator::create_local(int size, const Options& options) {
  check_rank(0, size);
  std::vector<Communicator> all;
  for (Session& session : open_local_sessions(size, options)) {
    all.push_back(Communicator(std::make_unique<Impl>(std::move(session), options)));
  }
  return all;
}

int Communicator::rank() const { return impl().group->rank(); }
int Communicator::size() const { return impl().group->size(); }

void Communicator::run(const Call& call) {
  Impl& i = impl();
  if (group_is_open()) {
    i.check(call);
    return keep_for_group(i, call);
  }
  i.wait_for_started();
  // A call that was right a moment ago need not be looked at again.
  if (!i.repeats(call) || call.in != i.newest.in || call.out != i.newest.out) i.check(call);
  i.run_now(call);
}

Future Communicator::start(Call call) {
  Impl& i = impl();
  i.check(call);
  if (group_is_open()) {
    throw Error(ErrorCode::invalid_usage,
                "start() inside of a group(): calls of a group are blocking ones");
  }
  if (!i.progress) {
    i.progress = std::make_unique<ProgressThread>([&i](const Call& c) { i.run_now(c); });
  }
  return Future(i.progress->start(std::move(call)));
}

void Communicator::all_reduce(const void* in, void* out, std::size_t count, DataType type,
                              ReduceOp op) {
  run(call_of(Collective::all_reduce, in, out, count, type, op));
}
void Communicator::all_gather(const void* in, void* out, std::size_t count, DataType type) {
  run(call_of(Collective::all_gather, in, out, count, type));
}
void Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                                  ReduceOp op) {
  run(call_of(Collective::reduce_scatter, in, out, count, type, op));
}
void Communicator::broadcast(const void* in, void* out, std::size_t count, DataType type,
                             int root) {
  run(call_of(Collective::broadcast, in, out, count, type, {}, root));
}
void Communicator::reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                          int root) {
  run(call_of(Collective::reduce, in, out, count, type, op, root));
}
void Communicator::gather(const void* in, void* out, std::size_t count, DataType type, int root) {
  run(call_of(Collective::gather, in, out, count, type, {}, root));
}
void Communicator::scatter(const void* in, void* out, std::size_t count, DataType type, int root) {
  run(call_of(Collective::scatter, in, out, count, type, {}, root));
}
void Communicator::all_to_all(const void* in, void* out, std::size_t count, DataType type) {
  run(call_of(Collective::all_to_all, in, out, count, type));
}

void Communicator::all_gather_v(const void* in, void* out, std::span<const std::size_t> counts,
                                std::span<const std::size_t> offsets, DataType type) {
  Call call = call_of(Collective::all_gather_v, in, out, 0, type);
  call.out_counts = copy(counts);
  call.out_offsets = copy(offsets);
  run(call);
}
void Communicator::reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts,
                                    DataType type, ReduceOp op) {
  Call call = call_of(Collective::reduce_scatter_v, in, out, 0, type, op);
  call.in_counts = copy(counts);
  run(call);
}
void Communicator::all_to_all_v(const void* in, std::span<const std::size_t> in_counts,
                                std::span<const std::size_t> in_offsets, void* out,
                                std::span<const std::size_t> out_counts,
                                std::span<const std::size_t> out_offsets, DataType type) {
  Call call = call_of(Collective::all_to_all_v, in, out, 0, type);
  call.in_counts = copy(in_counts);
  call.in_offsets = copy(in_offsets);
  call.out_counts = copy(out_counts);
  call.out_offsets = copy(out_offsets);
  run(call);
}

void Communicator::send(const void* in, std::size_t count, DataType type, int peer) {
  Call call = call_of(Collective::send_recv, in, nullptr, count, type);
  call.peer = peer;
  call.sends = true;
  run(call);
}
void Communicator::recv(void* out, std::size_t count, DataType type, int peer) {
  Call call = call_of(Collective::send_recv, nullptr, out, count, type);
  call.peer = peer;
  run(call);
}
void Communicator::barrier() { run(Call{}); }

Communicator Communicator::split(int color, int key, const Options& options) {
  Impl& i = impl();
  if (group_is_open()) throw Error(ErrorCode::invalid_usage, "split() inside of a group()");
  struct Entry {
    std::int64_t color, key;
    std::uint64_t segment;
  };
  // Random, so that the segments of any two communicators differ.
  std::random_device random;
  const Entry mine{color, key, static_cast<std::uint64_t>(random()) << 32 | random()};
  std::vector<Entry> all(static_cast<std::size_t>(size()));
  all_gather(&mine, all.data(), sizeof(Entry), DataType::uint8);
  if (color < 0) return {};
  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)].color == color) chosen.push_back(r);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  std::vector<int> members;
  std::vector<std::uint64_t> keys;
  int new_rank = 0;
  for (const int r : chosen) {
    if (r == rank()) new_rank = static_cast<int>(members.size());
    members.push_back(i.group->member(r));
    keys.push_back(all[static_cast<std::size_t>(r)].segment);
  }
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(options.rendezvous_timeout);
  Session session{i.geometry,
                  std::make_unique<LocalGroup>(i.group->shared_mesh(), new_rank, std::move(members),
                                               std::move(keys), i.geometry.shape,
                                               setting_boolean("TUTTI_CMA"), deadline)};
  return Communicator(std::make_unique<Impl>(std::move(session), options));
}

void Communicator::use_plan(std::string_view text) {
  impl().plans.use(text);
  impl().newest_plan = nullptr;  // its calls are bound anew
}

void Communicator::abort(std::string_view reason) {
  LocalGroup& g = *impl().group;
  g.fail({ErrorCode::aborted, g.rank(),
          reason.empty() ? fmt::format("rank {} aborted the communicator", g.rank())
                         : fmt::format("rank {} aborted the communicator: {}", g.rank(), reason)});
}

void Communicator::destroy() { impl_.reset(); }

}  // namespace tutti
