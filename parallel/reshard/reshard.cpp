#include "parallel/reshard/reshard.h"

#include <fmt/format.h>
#include <tutti/comm/window.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/reshard/bound_memory.h"
#include "parallel/reshard/extent.h"
#include "parallel/reshard/part.h"
#include "parallel/reshard/run.h"
#include "parallel/reshard/run_over_axis.h"
#include "parallel/reshard/transfer.h"
#include "parallel/reshard/verify.h"

namespace tutti::parallel::reshard {
namespace {

constexpr const char* kWhat = "the reshard";

[[noreturn]] void refuse_use(const std::string& why) {
  throw Error(ErrorCode::invalid_usage, "reshard: " + why);
}

std::string line_of(std::string_view side, const Layout& layout) {
  std::size_t pieces = 0;
  for (const TensorLayout& t : layout.tensors) pieces += t.pieces.size();
  return fmt::format("{} layout of {} ranks, {} tensors in {} pieces, with the hash {:016x}", side,
                     layout.ranks, layout.tensors.size(), pieces, layout.hash());
}

std::vector<std::string> lines_of(const Layout& from, const Layout& to, const ReshardOptions& o) {
  std::uint64_t hosts = 0;
  for (const int h : o.hosts) hosts = mix(hosts, static_cast<std::uint64_t>(h));
  return {line_of("source", from), line_of("target", to),
          fmt::format("messages of {} and {} bytes", o.message_bytes, o.host_message_bytes),
          fmt::format("a timeout of {} ns, {} memory of others, {} coder, hosts with the hash "
                      "{:016x}",
                      o.timeout.count(), o.map ? "mapped" : "no mapped",
                      o.coder == nullptr ? "no" : "a", hosts)};
}

/// By rank, the number of its host: ranks that can map each other's memory share one.
std::vector<int> find_hosts(Communicator& comm, const Window& window) {
  int first = 0;
  while (first < comm.rank() && window.map(first) == nullptr) ++first;
  std::vector<int> firsts(index(comm.size()));
  comm.all_gather(&first, firsts.data(), 1, DataType::int32);
  std::map<int, int> numbers;
  for (int& f : firsts) f = numbers.emplace(f, static_cast<int>(numbers.size())).first->second;
  return firsts;
}

void check_options(const ReshardOptions& o) {
  if (o.slots < 1 || o.slots > 1024) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("reshard: {} slots: there are 1 to 1024", o.slots));
  }
}

}  // namespace

struct Reshard::Impl {
  Impl(Communicator& world, Layout its_from, Layout its_to, ReshardOptions its_options)
      : from(std::move(its_from)),
        to(std::move(its_to)),
        options(std::move(its_options)),
        comm(world.split(0, world.rank())),
        own_axis(std::in_place, comm),
        axis(*own_axis) {
    agree(Agreement(axis), kWhat, lines_of(from, to, options));
    signals = comm.window(kSignalBytes);
    real_hosts = find_hosts(comm, signals);
    make_together();
  }
  Impl(Axis& its_axis, Layout its_from, Layout its_to, ReshardOptions its_options)
      : from(std::move(its_from)),
        to(std::move(its_to)),
        options(std::move(its_options)),
        axis(its_axis),
        memory(MemoryPool::Reuse::yes, axis.device()) {
    agree(Agreement(axis), kWhat, lines_of(from, to, options));
    make_together();
  }

  ~Impl() {
    const Transfer last(std::move(started));  // its end waits for the run's
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void make_together() {
    together(Agreement(axis), kWhat, [&] { make(); });
    part = part_of(plan, axis.rank(), [](int, int) { return false; });
    from_bytes = from.bytes_of(axis.rank());
    to_bytes = to.bytes_of(axis.rank());
  }

  void make() {
    check_options(options);
    if (from.ranks != axis.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reshard: the layouts are of {} ranks, and the communicator has {}",
                              from.ranks, axis.size()));
    }
    from.check(Side::from);
    to.check(Side::to);
    plan = make_plan(from, to,
                     {options.hosts.empty() ? real_hosts : options.hosts, options.message_bytes,
                      options.host_message_bytes});
    if (!own_axis) check_axis();
    if (options.prove) require_proof(from, to, plan);
  }

  /// What a Reshard over an axis cannot do.
  void check_axis() const {
    if (options.coder != nullptr || options.timeout.count() > 0) {
      throw Error(ErrorCode::invalid_argument,
                  "reshard: over an axis there is no coder, and no timeout of a run");
    }
    for (std::size_t t = 0; t < to.tensors.size(); ++t) {
      const TensorLayout& source = from.tensors[plan.tensors[t]];
      const TensorLayout& target = to.tensors[t];
      if (source.type == target.type) continue;
      if (axis.device().converts(source.type, target.type)) continue;
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("reshard: tensor '{}' becomes {} of {}, and {} has no kernel for that",
                      target.name, name(target.type), name(source.type), axis.device().name()));
    }
  }

  /// Throws Error(invalid_argument), on all ranks, where a rank lacks a buffer.
  void check_memory(Sources sources, Destinations destinations) {
    together(Agreement(axis), kWhat, [&] {
      check_pointers(from, from_bytes, sources, "source");
      check_pointers(to, to_bytes, destinations, "destination");
    });
  }
  void check_pointers(const Layout& layout, const std::vector<std::uint64_t>& bytes, auto pointers,
                      std::string_view side) const {
    if (pointers.size() != bytes.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reshard: rank {} passes {} {} buffers, and the layout has {}",
                              axis.rank(), pointers.size(), side, bytes.size()),
                  axis.rank());
    }
    for (std::size_t b = 0; b < bytes.size(); ++b) {
      if (bytes[b] == 0) continue;
      axis.device().check_memory("reshard", {{.name = layout.buffers[b],
                                              .memory = pointers[b],
                                              .count = bytes[b],
                                              .may_be_null = true}});
      if (pointers[b] != nullptr) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reshard: rank {} passes no memory for the {} buffer '{}', of which "
                              "it holds {} bytes",
                              axis.rank(), side, layout.buffers[b], bytes[b]),
                  axis.rank());
    }
  }

  void run(const RankPart& its_part, const Memory& own) {
    if (!own_axis) {
      return run_over_axis({axis, from, to, plan, options.slots, memory, traffic}, its_part, own);
    }
    run_part({comm, signals, from, to, plan, options, plan.hosts, slots, coded, traffic}, its_part,
             own, bound);
  }

  /// Moves the weights, with this memory or the bound one.
  void run_on(const std::optional<Memory>& own) {
    const std::lock_guard lock(mutex);
    if (own) {
      check_memory(own->sources, own->destinations);
      run(part, *own);
    } else {
      run(bound_part, {bound_sources, bound_destinations});
    }
  }

  static constexpr std::size_t kSignalBytes = 64;

  const Layout from, to;
  const ReshardOptions options;
  // Of a Reshard over a communicator; empty over an axis.
  Communicator comm;
  std::optional<CommunicatorAxis> own_axis;
  Axis& axis;
  MemoryPool memory;  // the device's, for messages over an axis
  Window signals;
  std::vector<int> real_hosts;
  Plan plan;
  RankPart part;  // without memory of others
  std::vector<std::uint64_t> from_bytes, to_bytes;
  ReshardTraffic traffic;
  Slots slots, coded;
  std::mutex mutex;  // of a run

  bool is_bound = false;
  BoundMemory bound;
  RankPart bound_part;
  std::vector<const void*> bound_sources;
  std::vector<void*> bound_destinations;
  std::shared_ptr<Transfer::State> started;  // the last one
};

Reshard::Reshard(Communicator& comm, Layout from, Layout to, ReshardOptions options)
    : impl_(std::make_unique<Impl>(comm, std::move(from), std::move(to), std::move(options))) {}
Reshard::Reshard(Axis& axis, Layout from, Layout to, ReshardOptions options)
    : impl_(std::make_unique<Impl>(axis, std::move(from), std::move(to), std::move(options))) {}
Reshard::Reshard(Reshard&&) noexcept = default;
Reshard& Reshard::operator=(Reshard&&) noexcept = default;
Reshard::~Reshard() = default;

const Layout& Reshard::from() const { return impl_->from; }
const Layout& Reshard::to() const { return impl_->to; }
const Plan& Reshard::plan() const { return impl_->plan; }
const ReshardTraffic& Reshard::traffic() const { return impl_->traffic; }

void Reshard::bind(Sources sources, Destinations destinations) {
  Impl& i = *impl_;
  unbind();
  const std::lock_guard lock(i.mutex);
  i.check_memory(sources, destinations);
  i.bound_sources.assign(sources.begin(), sources.end());
  i.bound_destinations.assign(destinations.begin(), destinations.end());
  if (i.options.map && i.own_axis) {
    i.bound =
        BoundMemory(i.comm, i.from, i.to, {i.bound_sources, i.bound_destinations}, i.real_hosts);
  }
  i.bound_part = part_of(i.plan, i.axis.rank(),
                         [&](int receiver, int sender) { return i.bound.reads(receiver, sender); });
  i.is_bound = true;
}

void Reshard::unbind() {
  Impl& i = *impl_;
  const std::lock_guard lock(i.mutex);
  if (!std::exchange(i.is_bound, false)) return;
  i.bound.close();
}

void Reshard::run(Sources sources, Destinations destinations) {
  impl_->run_on(Memory{sources, destinations});
}

void Reshard::run() {
  if (!impl_->is_bound) refuse_use("run() without memory needs bind() before");
  impl_->run_on(std::nullopt);
}

Transfer Reshard::start(Sources sources, Destinations destinations) {
  Impl& i = *impl_;
  i.started = start_transfer(std::move(i.started),
                             [&i, from = std::vector<const void*>(sources.begin(), sources.end()),
                              to = std::vector<void*>(destinations.begin(), destinations.end())] {
                               i.run_on(Memory{from, to});
                             });
  return Transfer(i.started);
}

Transfer Reshard::start() {
  Impl& i = *impl_;
  if (!i.is_bound) refuse_use("start() without memory needs bind() before");
  i.started = start_transfer(std::move(i.started), [&i] { i.run_on(std::nullopt); });
  return Transfer(i.started);
}

void Reshard::abort(std::string_view reason) { impl_->axis.abort(reason); }

}  // namespace tutti::parallel::reshard
