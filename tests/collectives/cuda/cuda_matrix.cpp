#include "tests/collectives/cuda/cuda_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <thread>

#include "bench/perf/data.h"
#include "tests/comm/uneven.h"

namespace tutti::test {
namespace {

constexpr std::size_t kGuardBytes = 256;

bool has_blocks(Collective c, bool out) {
  return (out ? out_blocks(c, 2, 0, 0) : in_blocks(c, 2, 0, 0)) > 1;
}

/// One rank's call: tables, and what its buffers hold.
struct RankCall {
  perf::CallSetup setup;
  perf::Expectation images;
  std::size_t in_offset = 0, out_offset = 0;  // elements
  std::vector<std::size_t> in_counts, in_offsets, out_counts, out_offsets;
};

RankCall call_of(const DeviceCase& c, int ranks, int rank) {
  const Collective collective = c.algorithm->collective;
  const bool empty = collective == Collective::barrier;
  const std::size_t count = empty ? 0 : (c.bytes + size_of(c.type) - 1) / size_of(c.type);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t guard = kGuardBytes / size_of(c.type);
  RankCall r;
  r.setup.collective = collective;
  r.setup.type = c.type;
  r.setup.ranks = ranks;
  r.setup.rank = rank;
  r.setup.root = c.root;
  r.setup.in_place = c.in_place;
  r.setup.shape = {count, has_blocks(collective, false) ? count * n : count,
                   has_blocks(collective, true) ? count * n : count};
  if (collective == Collective::all_gather_v || collective == Collective::reduce_scatter_v) {
    const UnevenCall u = uneven_call(r.setup, guard);
    r.images = u.images;
    r.in_offset = u.in_offset;
    r.out_offset = u.out_offset;
    const std::vector own{u.counts[static_cast<std::size_t>(rank)]};
    r.in_counts = collective == Collective::all_gather_v ? own : u.counts;
    r.out_counts = collective == Collective::all_gather_v ? u.counts : own;
  } else {
    if (collective == Collective::all_to_all_v) {
      for (int peer = 0; peer < ranks; ++peer) {
        r.in_counts.push_back(perf::all_to_all_v_count(rank, peer, count, c.type, ranks));
        r.out_counts.push_back(perf::all_to_all_v_count(peer, rank, count, c.type, ranks));
      }
      std::size_t sum = 0;
      for (const std::size_t x : r.in_counts) sum += x;
      r.setup.shape.in = r.setup.shape.out = sum;
    }
    r.images = perf::expectation(r.setup, guard);
    if (c.in_place) {
      r.in_offset = perf::in_place_input(r.setup);
      r.out_offset = perf::in_place_output(r.setup);
    }
  }
  r.in_offsets = packed_offsets(r.in_counts);
  r.out_offsets = packed_offsets(r.out_counts);
  return r;
}

}  // namespace

std::string DeviceCase::text(int ranks) const {
  return fmt::format(
      "{} {} of {} ranks: {} {} {} bytes, root {}, {}, protocol {}, copies {}, lanes {}, "
      "misaligned by {}{}",
      name(algorithm->collective), algorithm->name, ranks, name(type), kind ? name(*kind) : "",
      bytes, root, in_place ? "in place" : "out of place",
      protocol ? static_cast<int>(*protocol) : -1, copies, lanes, misalign,
      canonical ? ", canonical" : "");
}

DeviceRanks::DeviceRanks(DeviceUnderTest device, int ranks, const device::SegmentShape& shape,
                         Data data)
    : device_(std::move(device)), ranks_(ranks), shape_(shape) {
  shape_.ranks = static_cast<std::uint32_t>(ranks);
  const auto allocate = [&](std::size_t bytes) {
    return apart_.emplace_back(device_.device.allocate(bytes));
  };
  std::vector<std::byte*> segments;
  for (int r = 0; r < ranks; ++r) {
    std::byte* const host = data == Data::apart ? allocate(shape_.bytes()) : nullptr;
    executors_.push_back(
        std::make_unique<device::Executor>(device_.device, r, shape_, ranks, host));
    segments.push_back(executors_.back()->segment());
    executors_.back()->set_limits({std::chrono::seconds(20)});
  }
  for (const auto& e : executors_) {
    for (int r = 0; r < ranks; ++r) e->connect(r, segments[static_cast<std::size_t>(r)]);
  }
  for (int from = 0; from < ranks && data == Data::apart; ++from) {
    for (int to = from; to < ranks; ++to) {
      // Both directions between the two, which are one for a rank and itself.
      const std::size_t link = std::size_t{shape_.slots} * shape_.simple_bytes;
      const auto slots = [&] {
        std::byte* const memory = allocate(shape_.data_channels() * link);
        std::vector<std::byte*> first;
        for (std::size_t c = 0; c < shape_.data_channels(); ++c) first.push_back(memory + c * link);
        return first;
      };
      const std::vector<std::byte*> there = slots();
      const std::vector<std::byte*> back = from == to ? there : slots();
      executor(from).put_data(to, there, back);
      if (from != to) executor(to).put_data(from, back, there);
    }
  }
  buffers_.resize(2 * executors_.size());
}

DeviceRanks::~DeviceRanks() {
  device_.wait();
  device_.device.drain(this);
  executors_.clear();
  for (const Buffer& b : buffers_) {
    if (b.memory != nullptr) device_.device.deallocate(b.memory);
  }
  for (std::byte* const memory : apart_) device_.device.deallocate(memory);
}

std::size_t DeviceRanks::count_written() const {
  std::size_t written = 0;
  std::vector<std::byte> slots(std::size_t{shape_.slots} * shape_.simple_bytes);
  for (const auto& e : executors_) {
    for (std::uint32_t r = 0; r < shape_.ranks; ++r) {
      for (std::uint32_t c = 0; c < shape_.data_channels(); ++c) {
        const std::byte* const at = e->segment() + shape_.connection(r, c) + shape_.simple(0);
        device_.download(slots.data(), at, slots.size());
        written += slots.size() - static_cast<std::size_t>(std::ranges::count(slots, std::byte{}));
      }
    }
  }
  return written;
}

std::byte* DeviceRanks::buffer(std::size_t index, std::size_t bytes) {
  Buffer& b = buffers_[index];
  if (b.bytes < bytes) {
    if (b.memory != nullptr) device_.device.deallocate(b.memory);
    b = {device_.device.allocate(2 * bytes), 2 * bytes};
  }
  return b.memory;
}

const Plan& DeviceRanks::whole_plan(const DeviceCase& c) {
  if (c.plan != nullptr) return *c.plan;
  PlanRequest request;
  request.collective = c.algorithm->collective;
  request.ranks = ranks_;
  request.root = c.root;
  request.lanes = c.lanes;
  request.in_order = c.canonical;
  auto& plan = plans_[fmt::format("{} {} {} {} {}", static_cast<int>(request.collective),
                                  c.algorithm->name, c.root, c.lanes, c.canonical)];
  if (!plan) plan = std::make_unique<Plan>(generate_plan(*c.algorithm, request));
  return *plan;
}

const RankPlan& DeviceRanks::plan(const DeviceCase& c, int rank) {
  return whole_plan(c).ranks[static_cast<std::size_t>(rank)];
}

DeviceRanks::Bound DeviceRanks::bind(const DeviceCase& c) {
  struct State {
    perf::Data data;
    std::vector<RankCall> calls;
    std::vector<std::byte*> send, receive;  // where the buffers begin, guards included
  };
  auto state =
      std::make_shared<State>(State{perf::Data({c.type, c.kind, ranks_, ++seed_}), {}, {}, {}});
  const std::size_t element = size_of(c.type);
  const Collective collective = c.algorithm->collective;
  std::size_t block = 0;
  std::size_t largest = 0;
  for (int r = 0; r < ranks_; ++r) {
    state->calls.push_back(call_of(c, ranks_, r));
    const RankCall& call = state->calls.back();
    block = std::max(block, call.setup.shape.count);
    for (const std::size_t x : call.in_counts) block = std::max(block, x);
    for (const std::size_t x : call.out_counts) block = std::max(block, x);
    largest = std::max(largest, std::max(call.setup.shape.in, call.setup.shape.out) * element);
  }
  Bound bound;
  for (int r = 0; r < ranks_; ++r) {
    const RankCall& call = state->calls[static_cast<std::size_t>(r)];
    const auto at = [&](std::size_t which, const perf::Image& a, const perf::Image& b) {
      const std::size_t bytes = std::max(a.elements, b.elements) * element + 2 * kGuardBytes;
      return buffer(2 * static_cast<std::size_t>(r) + which, bytes + c.misalign * element) +
             c.misalign * element;
    };
    state->send.push_back(at(0, call.images.send, call.images.send));
    state->receive.push_back(at(1, call.images.receive_before, call.images.receive_after));
    device::DeviceBinding b;
    b.plan = &plan(c, r);
    b.type = c.type;
    if (c.kind) b.op = state->data.op(r);
    std::byte* const in = (c.in_place ? state->receive.back() : state->send.back()) + kGuardBytes;
    std::byte* const out = state->receive.back() + kGuardBytes;
    b.in = {in + call.in_offset * element, call.setup.shape.count, call.in_counts, call.in_offsets};
    b.out = {out + call.out_offset * element, call.setup.shape.count, call.out_counts,
             call.out_offsets};
    b.block = block;
    b.largest = largest;
    b.windows = c.algorithm->windows;
    if (b.windows) {
      const DataPath path = needs_of(whole_plan(c)).path;
      b.link_data = path.link_data;
      b.from_inputs = path.from_inputs;
    }
    if (c.plan != nullptr) {
      const PlanNeeds needs = needs_of(*c.plan);
      b.windows = needs.path.windows;
      b.link_data = needs.path.link_data;
      b.plan_channels = needs.channels;
      b.tmp_chunks = needs.path.tmp_chunks;
      b.from_inputs = needs.path.from_inputs;
    }
    b.tiles_by_lane = collective == Collective::all_to_all_v;
    b.signature = static_cast<std::uint64_t>(collective) * 1000 + c.bytes;
    b.protocol = c.protocol;
    b.copies = c.copies;
    b.canonical = c.canonical || device_.canonical;
    bound.launches.push_back(executor(r).prepare(b, device_.stream));
  }
  const auto bytes_of = [element](const perf::Image& i) { return i.elements * element; };
  bound.upload = [this, state, bytes_of] {
    std::vector<std::byte> image;
    const auto paint = [&](const perf::Image& i, std::byte* to) {
      image.resize(bytes_of(i));
      perf::paint(state->data, i, image.data());
      device_.device.upload(to, image);
    };
    for (std::size_t r = 0; r < state->calls.size(); ++r) {
      paint(state->calls[r].images.send, state->send[r]);
      paint(state->calls[r].images.receive_before, state->receive[r]);
    }
  };
  bound.count_wrong = [this, state, bytes_of] {
    device_.wait();
    std::size_t wrong = 0;
    std::vector<std::byte> image;
    const auto count = [&](const perf::Image& i, const std::byte* from) {
      image.resize(bytes_of(i));
      device_.download(image.data(), from, image.size());
      wrong += perf::count_wrong(state->data, i, image.data());
    };
    for (std::size_t r = 0; r < state->calls.size(); ++r) {
      count(state->calls[r].images.send, state->send[r]);
      count(state->calls[r].images.receive_after, state->receive[r]);
    }
    return wrong;
  };
  return bound;
}

void DeviceRanks::launch(const Bound& bound, DataType type) {
  const std::span<const device::RankLaunch> all(bound.launches);
  {
    std::vector<std::jthread> others;
    for (std::size_t first = device::kMostRanks; first < all.size(); first += device::kMostRanks) {
      others.emplace_back([this, type,
                           part = all.subspan(first).first(
                               std::min<std::size_t>(all.size() - first, device::kMostRanks))] {
        device::enqueue(device_.device, part, shape_, type, device_.stream);
      });
    }
    device::enqueue(device_.device,
                    all.first(std::min<std::size_t>(all.size(), device::kMostRanks)), shape_, type,
                    device_.stream);
  }
  device_.device.note(device_.stream, this);
}

void DeviceRanks::throw_failure() const {
  for (const auto& e : executors_) {
    if (const auto failure = e->failure()) throw Error(*failure);
  }
}

std::size_t DeviceRanks::run(const DeviceCase& c) {
  const Bound bound = bind(c);
  bound.upload();
  launch(bound, c.type);
  const std::size_t wrong = bound.count_wrong();
  throw_failure();
  return wrong;
}

}  // namespace tutti::test
