// Launches: which blocks run, and what they know of those before them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tests/ptx/machine.h"

namespace tutti::ptx {
namespace {

// Between what blocks share, so that an address beyond the end is nobody's.
constexpr std::size_t kGap = 4096;

// Of instructions of warps, until a stream goes on: a few, or longer than small launches take.
constexpr std::uint32_t kShortPause = 500, kLongPause = 40'000;

}  // namespace

/// Launches that follow each other, and the one that runs.
struct Machine::Stream {
  const std::vector<Launched>* launches = nullptr;
  std::size_t next = 0;
  std::uint64_t start = 0;  // of that: the steps by then
  Clock known;              // what the launches before it did
  std::unique_ptr<Run> run;
  std::vector<std::unique_ptr<Block>> blocks;

  bool has_next() const { return next < launches->size(); }
};

std::unique_ptr<Block> Machine::begin(Run& run, std::uint32_t number, std::uint32_t gpu,
                                      const Clock& known) {
  const Program& p = *run.program;
  std::unique_ptr<Block> block;
  for (auto& spare : spare_) {
    if (spare->shared_bytes != p.shared_bytes) continue;
    block = std::move(spare);
    spare = std::move(spare_.back());
    spare_.pop_back();
    break;
  }
  if (!block) {
    block = std::make_unique<Block>();
    block->shared_bytes = p.shared_bytes;
    const std::size_t whole = (p.shared_bytes + kGap + 255) / 256 * 256;
    block->shared = static_cast<std::byte*>(std::aligned_alloc(256, whole));
    if (block->shared == nullptr) throw std::bad_alloc();
    if (p.shared_bytes > 0) memory.add(block->shared, p.shared_bytes, true);
  } else {
    memory.blank(block->shared);
  }
  std::uint32_t index = 0;
  while (index < taken_.size() && taken_[index]) ++index;
  if (index == taken_.size()) {
    taken_.push_back(false);
    intervals_.push_back(0);
    running_.push_back(nullptr);
    memory.gpus.push_back(0);
  }
  if (index >= 256) throw Fault("more than 256 blocks at a time");
  if (std::uint64_t{intervals_[index]} << 8 > kMostTime / 2) throw Fault("too many barriers");
  taken_[index] = true;
  running_[index] = block.get();
  memory.gpus[index] = gpu;
  block->run = &run;
  block->number = number;
  block->arrived = block->exited = 0;
  block->view.index = index;
  block->view.gpu = gpu;
  block->view.interval = intervals_[index];
  block->view.known = known;
  const std::uint32_t threads = p.threads;
  block->threads.clear();
  block->threads.resize(threads);
  for (std::uint32_t t = 0; t < threads; ++t) {
    block->threads[t].block = &block->view;
    block->threads[t].number = index * kMostBlockThreads + t;
  }
  block->warps.resize((threads + kLanes - 1) / kLanes);
  for (std::uint32_t w = 0; w < block->warps.size(); ++w) {
    Warp& warp = block->warps[w];
    warp.block = block.get();
    warp.first = w * kLanes;
    warp.values.assign(std::size_t{kLanes} * p.slots, 0xDEADBEEFDEADBEEFULL);
    warp.registers = {warp.values.data(), p.constants.data()};
    warp.splits.clear();
    warp.late.clear();
    Split all;
    const std::uint32_t n = std::min(kLanes, threads - warp.first);
    all.lanes = n == kLanes ? kWholeWarp : (1u << n) - 1;
    warp.splits.push_back(all);
    warp.exited = ~all.lanes;
    warp.is_listed = false;
    list(warp);
  }
  return block;
}

void Machine::end(Block& block, Clock& known) {
  Memory::meet(block.view, block.threads);
  known.join(block.view.known);
  intervals_[block.view.index] = block.view.interval;
  taken_[block.view.index] = false;
  running_[block.view.index] = nullptr;
}

void Machine::list(Warp& warp) {
  if (warp.is_listed) return;
  warp.is_listed = true;
  warp.block->run->ready->push_back(&warp);
}

void Machine::begin(Stream& s, std::vector<Warp*>& ready) {
  const Launched& launched = (*s.launches)[s.next++];
  const Program& program = *launched.program;
  if (program.threads == 0 || program.threads > kMostBlockThreads) throw Fault("an odd block");
  if (launched.parameters.size() < program.parameter_bytes) throw Fault("too few parameters");
  s.run = std::make_unique<Run>();
  Run& run = *s.run;
  run.program = &program;
  run.parameters = std::span(launched.parameters).first(program.parameter_bytes);
  run.blocks = static_cast<std::uint32_t>(launched.gpu.size());
  run.ready = &ready;
  auto& counts = executed[&program];
  counts.resize(program.ops.size());
  run.executed = &counts;
  memory.has_fences = memory.has_fences || program.has_fences;
  for (std::uint32_t b = 0; b < run.blocks; ++b) {
    s.blocks.push_back(begin(run, b, launched.gpu[b], s.known));
  }
  run.unfinished = run.blocks;
}

void Machine::end(Stream& s) {
  for (auto& b : s.blocks) {
    end(*b, s.known);
    spare_.push_back(std::move(b));
  }
  s.blocks.clear();
  s.run.reset();
  ended_.join(s.known);
}

bool Machine::advance(std::vector<Stream>& streams, std::vector<Warp*>& ready) {
  bool left = false;
  for (Stream& s : streams) {
    if (s.run && s.run->unfinished == 0) {
      end(s);
      s.start = streams.size() > 1 ? pause() : 0;
    }
    if (!s.run && s.has_next() && (steps >= s.start || ready.empty())) begin(s, ready);
    left = left || s.run || s.has_next();
  }
  return left;
}

std::uint64_t Machine::pause() {
  return steps + random_.below(random_() % 2 == 0 ? kShortPause : kLongPause);
}

void Machine::run(const std::vector<std::vector<Launched>>& launches) {
  std::unique_lock lock(mutex);
  std::vector<Warp*> ready;
  std::vector<Stream> streams(launches.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].launches = &launches[i];
    streams[i].known = ended_;
    streams[i].start = streams.size() > 1 ? pause() : 0;
  }
  const std::uint64_t until = steps + most_steps;
  try {
    std::uint32_t turns = 0;
    while (advance(streams, ready)) {
      if (ready.empty()) fail_stuck(streams);
      const std::uint32_t k = random_.below(static_cast<std::uint32_t>(ready.size()));
      Warp& warp = *ready[k];
      program_ = warp.block->run->program;
      step(warp, 1 + random_.below(longest_turn));
      if (!warp.can_run()) {
        // Others may have been listed meanwhile, behind it.
        warp.is_listed = false;
        ready[k] = ready.back();
        ready.pop_back();
      }
      if (steps > until) throw Fault("a launch without an end");
      if (++turns % 64 == 0) {
        // Launches of other threads, and the host.
        lock.unlock();
        lock.lock();
      }
    }
  } catch (...) {
    for (Stream& s : streams) end(s);
    throw;
  }
}

void Machine::run(const Program& program, std::span<const std::byte> parameters,
                  const std::vector<std::uint32_t>& gpu) {
  run({{{&program, {parameters.begin(), parameters.end()}, gpu}}});
}

void Machine::fail_stuck(const std::vector<Stream>& streams) const {
  for (const Stream& stream : streams) {
    for (const auto& b : stream.blocks) {
      for (const Warp& w : b->warps) {
        for (const Split& s : w.splits) {
          fail(w, s.at,
               s.state == Split::State::at_barrier
                   ? fmt::format("{} of {} threads wait at a barrier, and nobody goes on",
                                 b->arrived, b->threads.size())
                   : fmt::format("threads {:#x} of a warp wait for others, which wait elsewhere",
                                 s.lanes));
        }
      }
    }
  }
  throw Fault("nobody goes on");
}

}  // namespace tutti::ptx
