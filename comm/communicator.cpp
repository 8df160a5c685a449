#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "comm/device_call.h"
#include "comm/environment.h"
#include "comm/impl.h"
#include "core/settings.h"
#include "core/window_memory.h"

namespace tutti {
namespace {

WaitPolicy policy_for(const Geometry& geometry, int ranks, const Options& options) {
  WaitPolicy policy;
  policy.crowded = static_cast<std::uint64_t>(ranks) > geometry.cores;
  policy.timeout = options.timeout;
  policy.report_after = options.report_after;
  const std::int64_t wish = setting_integer("TUTTI_SPIN");
  // Enough to cover an exchange with a running peer, or a switch between two on another core.
  policy.spins = wish < 0 ? 100 : static_cast<int>(std::min<std::int64_t>(wish, 1'000'000'000));
  return policy;
}

Platform platform_of(const Geometry& g, int ranks) {
  return {g.machine, ranks, static_cast<int>(g.cores), g.shape, g.tile_bytes};
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

void check_rank(int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} of {} ranks makes no sense: ranks are 0 to size - 1", rank, size));
  }
}

/// Whether two calls of a collective differ in nothing but addresses and the scalar of the
/// operator. (Not for v-variants.)
bool same_shape(const Call& a, const Call& b) {
  return a.count == b.count && a.collective == b.collective && a.type == b.type &&
         a.op.kind == b.op.kind && a.root == b.root;
}

}  // namespace

Communicator::Impl::Impl(Session session, const Options& o)
    : options(o),
      geometry(session.geometry),
      group(std::move(session.group)),
      plans(group->rank(), platform_of(geometry, group->size()), !group->one_process(), o.algorithm,
            geometry.windows),
      policy(policy_for(geometry, group->size(), o)),
      operation(*group, workspace),
      agreement(*group, workspace),
      all_messages(2 * static_cast<std::size_t>(group->size())) {
  PlanRequest request;
  request.ranks = group->size();
  agreement_plan.plan = plans.choose({Collective::all_reduce, 1, DataType::uint8}, false)
                            .generate(request, group->rank());
  const Call call =
      call_of(Collective::all_reduce, nullptr, nullptr, 1, DataType::uint8, ReduceKind::min);
  agreement_binding = bind_call(call, *group, geometry, agreement_plan, tables);
}

Communicator::Impl::~Impl() {
  progress.reset();  // before what it uses
}

void Communicator::Impl::check(const Call& call) const {
  if (group->failed()) group->throw_failure();
  check_call(call, group->rank(), group->size());
}

PreparedCall& Communicator::Impl::look_up(const Call& call) {
  const int rank = group->rank();
  const int ranks = group->size();
  if (newest == nullptr || !same_shape(call, newest->call)) {
    std::unique_ptr<PreparedCall>* slot = nullptr;
    if (!is_v(call.collective)) {
      const auto kind = static_cast<std::uint64_t>(call.collective) |
                        static_cast<std::uint64_t>(call.type) << 8 |
                        static_cast<std::uint64_t>(call.op.kind) << 16 |
                        static_cast<std::uint64_t>(call.root) << 24;
      slot = &prepared[mix(kind, call.count) % kPrepared];
    }
    if (slot == nullptr || !*slot || !same_shape(call, (*slot)->call)) {
      check_call(call, rank, ranks);
      PreparedCall p;
      p.call = call;
      p.sizes = buffer_sizes(call, rank, ranks);
      p.binding.signature = signature_of(call);
      if (slot == nullptr) {
        newest = nullptr;
        return uneven = std::move(p);
      }
      *slot = std::make_unique<PreparedCall>(std::move(p));
    }
    newest = slot->get();
    repeats = 0;
  }
  if (call.in != newest->binding.in.base || call.out != newest->binding.out.base) {
    check_addresses(call, newest->sizes, rank, ranks);
  }
  return *newest;
}

bool Communicator::Impl::begin(PreparedCall& p, const Call& call) {
  Signature& signature = p.binding.signature;
  signature.sequence = ++sequence;
  if (p.plan != nullptr) return true;
  if (p.sizes.largest == 0 && call.collective != Collective::barrier &&
      call.collective != Collective::all_to_all_v) {
    publish_signature(group->control(), signature);
    repeats = 0;
    return false;
  }
  p.plan =
      &plans.get(call.collective, p.sizes.largest, call.type, call.op.kind, signature.root, true);
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
  // The same operation, so that calls that do not match are found here already; another message.
  b.tag = ~tag_of(p.hash, sequence);
  return b;
}

const Binding& Communicator::Impl::bind(PreparedCall& p, const Call& call) {
  Binding& binding = p.binding;
  const ReadyPlan* plan = p.plan;
  if (agrees(p) && all_in_windows == 0 && !group->cma_everywhere()) {
    plan = &plans.get(call.collective, p.sizes.largest, call.type, call.op.kind,
                      binding.signature.root, false);
  }
  if (plan != p.bound) {
    const Signature signature = binding.signature;
    binding = bind_call(call, *group, geometry, *plan, tables);
    binding.signature = signature;
    p.bound = plan;
  }
  binding.op = call.op;
  binding.in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
  binding.out.base = static_cast<std::byte*>(call.out);
  binding.tag = tag_of(p.hash, sequence);
  binding.unchanged = ++repeats > kRecords && &p == newest && !is_rooted(call.collective);
  return binding;
}

Communicator::Impl::Messages& Communicator::Impl::messages(int peer, bool sends) {
  auto& m = all_messages[2 * static_cast<std::size_t>(peer) + (sends ? 1 : 0)];
  if (!m) m = std::make_unique<Messages>(*group, workspace);
  return *m;
}

bool Communicator::Impl::repeats_message(const Call& call) const {
  if (call.peer < 0 || call.peer >= group->size()) return false;
  const auto& m = all_messages[2 * static_cast<std::size_t>(call.peer) + (call.sends ? 1 : 0)];
  return m && m->binding.type == call.type && m->binding.in.count == call.count &&
         m->binding.in.base == call.in && m->binding.out.base == call.out;
}

const Binding& Communicator::Impl::bind_message(Messages& m, const Call& call) {
  Binding& b = m.binding;
  if (b.plan == nullptr || b.type != call.type || b.in.count != call.count) {
    b = bind_call(call, *group, geometry, plans.point_to_point(call.peer, call.sends), tables);
    b.signature = signature_of(call);
    b.tag = point_to_point_tag(call.type, call.count);
  }
  b.in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
  b.out.base = static_cast<std::byte*>(call.out);
  return b;
}

void Communicator::Impl::forget_calls() {
  for (auto& p : prepared) p.reset();
  newest = nullptr;
}

void Communicator::Impl::fail_with(const std::string& text, ErrorCode code, int culprit) {
  if (!group->failed()) {
    // A dead peer is the better explanation of whatever went wrong.
    group->check_peers("running an operation that failed: " + text);
    group->fail({code, culprit, fmt::format("rank {}: {}", group->rank(), text)});
  }
  abort_on_device(*group);
  group->throw_failure();
}

void Communicator::Impl::run_now(const Call& call) {
  if (group->failed()) group->throw_failure();
  const auto run = [&](Operation& on, const Binding& binding) {
    Job job(on);
    job.start(binding);
    Job* const jobs[] = {&job};
    run_to_completion(jobs, policy);
  };
  PreparedCall* collective = nullptr;
  if (call.collective != Collective::send_recv) {
    collective = &look_up(call);
  } else {
    if (!repeats_message(call)) check_call(call, group->rank(), group->size());
    if (call.peer == group->rank()) {
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format(
              "rank {} {} itself outside of a group: put the send and the recv into one group()",
              group->rank(), call.sends ? "sends to" : "receives from"));
    }
  }
  try {
    if (collective == nullptr) {
      Messages& m = messages(call.peer, call.sends);
      run(m.operation, bind_message(m, call));
    } else if (begin(*collective, call)) {
      if (agrees(*collective)) run(agreement, bind_agreement(*collective, call));
      run(operation, bind(*collective, call));
    }
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
  i.run_now(call);
}

void Communicator::run(const Call& call, void* stream) {
  Impl& i = impl();
  check_on_device(i, call);
  if (group_is_open()) return keep_for_group(i, call, stream);
  const DeviceCallOn one{&i, &call, stream};
  run_on_device({&one, 1});
}

Future Communicator::start(const Call& call) {
  Impl& i = impl();
  i.check(call);
  if (group_is_open()) {
    throw Error(ErrorCode::invalid_usage,
                "start() inside of a group(): calls of a group are blocking ones");
  }
  if (!i.progress) {
    i.progress = std::make_unique<ProgressThread>([&i](const Call& c) { i.run_now(c); });
  }
  return Future(i.progress->start(call));
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
  call.out_counts = counts;
  call.out_offsets = offsets;
  run(call);
}
void Communicator::reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts,
                                    DataType type, ReduceOp op) {
  Call call = call_of(Collective::reduce_scatter_v, in, out, 0, type, op);
  call.in_counts = counts;
  run(call);
}
void Communicator::all_to_all_v(const void* in, std::span<const std::size_t> in_counts,
                                std::span<const std::size_t> in_offsets, void* out,
                                std::span<const std::size_t> out_counts,
                                std::span<const std::size_t> out_offsets, DataType type) {
  Call call = call_of(Collective::all_to_all_v, in, out, 0, type);
  call.in_counts = in_counts;
  call.in_offsets = in_offsets;
  call.out_counts = out_counts;
  call.out_offsets = out_offsets;
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
  return Communicator(std::make_unique<Impl>(
      open_subsession(*i.group, i.geometry, new_rank, std::move(members), std::move(keys), options),
      options));
}

Communicator Communicator::shrink(std::span<const int> excluded, const Options& options) {
  Impl& i = impl();
  if (group_is_open()) throw Error(ErrorCode::invalid_usage, "shrink() inside of a group()");
  std::vector<bool> stays(static_cast<std::size_t>(size()), true);
  for (const int r : excluded) {
    check_rank(r, size());
    stays[static_cast<std::size_t>(r)] = false;
  }
  if (!stays[static_cast<std::size_t>(rank())]) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} is excluded from the shrunken communicator, so it must not "
                            "call shrink()",
                            rank()));
  }
  i.wait_for_started();
  std::vector<int> survivors;
  for (int r = 0; r < size(); ++r) {
    if (stays[static_cast<std::size_t>(r)]) survivors.push_back(r);
  }
  const std::uint64_t times = ++i.shrinks[survivors];
  std::uint64_t who = 0;
  for (const int r : survivors) who = mix(who, static_cast<std::uint64_t>(r));
  std::vector<int> members;
  std::vector<std::uint64_t> keys;
  int new_rank = 0;
  for (const int r : survivors) {
    if (r == rank()) new_rank = static_cast<int>(members.size());
    members.push_back(i.group->member(r));
    // Every survivor can compute them, so that nothing has to be exchanged.
    keys.push_back(mix(mix(i.group->key(r), who), times));
  }
  return Communicator(std::make_unique<Impl>(
      open_subsession(*i.group, i.geometry, new_rank, std::move(members), std::move(keys), options),
      options));
}

void Communicator::use_plan(std::string_view text) {
  Impl& i = impl();
  i.wait_for_started();
  i.forget_calls();  // they refer to the plan that is replaced
  i.plans.use(text);
}

void Communicator::abort(std::string_view reason) {
  LocalGroup& g = *impl().group;
  g.fail({ErrorCode::aborted, g.rank(),
          reason.empty() ? fmt::format("rank {} aborted the communicator", g.rank())
                         : fmt::format("rank {} aborted the communicator: {}", g.rank(), reason)});
  abort_on_device(g);
}

void Communicator::destroy() { impl_.reset(); }

}  // namespace tutti
