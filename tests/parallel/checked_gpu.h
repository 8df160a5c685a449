// A rank's GPU that checks the order of its work. It knows of each access of memory on which stream
// it comes, and what happened before it, by vector clocks: streams keep their order, an event
// brings what its stream has done to the stream that waits for it, and to the host. Two accesses of
// the same bytes, at least one of them a write, are a race if neither happened before the other; so
// is memory that is given back to the GPU while work may use it. Nothing depends on what really ran
// when.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/impl.h"
#include "parallel/axis.h"
#include "parallel/gpu.h"
#include "tests/device/streamed_gpu.h"

namespace tutti::test {

class CheckedGpu final : public parallel::Gpu {
 public:
  CheckedGpu() : Gpu(streamed_gpus(), 0), own_(the_gpu->make_stream()) { use(own_.get()); }

  struct Range {
    const void* begin = nullptr;
    std::size_t bytes = 0;
  };
  /// Work on `stream`, from now on.
  void launch(std::string what, Stream stream, const std::vector<Range>& reads,
              const std::vector<Range>& writes, std::function<void()> body) {
    accesses(std::move(what), stream, reads, writes);
    if (body) the_gpu->put(stream, std::move(body));
  }

  /// The races so far, in words.
  const std::vector<std::string>& races() const { return races_; }
  /// The calls of order() that told a stream anything. One of them (from 0) counts as left out, as
  /// a mutant of the engines would leave it out; so that the mutant does not crash, it orders.
  int orders() const { return orders_; }
  int left_out = -1;
  /// Whether the newest work of a name happened before another's.
  bool happened_before(const std::string& first, const std::string& then) const {
    const Work& a = named_.at(first);
    return knows(named_.at(then).clock, a.stream, a.tick);
  }

  // --- Device, with the arithmetic of a framework ---
  bool computes() const override { return true; }
  parallel::LayerMath* layer_math() override { return math; }
  parallel::LayerMath* math = nullptr;  // outlives it
  void release(std::byte* memory, const Event& last_use) noexcept override {
    synchronize(last_use);
    std::erase_if(accesses_, [&](const Access& a) {
      if (a.end <= memory || a.begin >= memory + sizes_[memory]) return false;
      if (!knows(host_, a.stream, a.tick)) races_.push_back(a.what + " / its memory is freed");
      return true;
    });
    Gpu::release(memory, nullptr);
  }
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = Gpu::allocate(bytes);
    sizes_[memory] = bytes;
    return memory;
  }
  Event record(Stream stream) override {
    auto mark = std::make_shared<Mark>();
    mark->inner = Gpu::record(stream);
    mark->clock = clocks_[stream];
    return mark;
  }
  void order(const Event& event, Stream stream) override {
    if (event == nullptr) return;
    const auto& mark = *static_cast<Mark*>(event.get());
    join(clocks_[stream], host_);  // what the host has waited for is over
    const bool tells = std::ranges::any_of(mark.clock, [&](const auto& entry) {
      return !knows(clocks_[stream], entry.first, entry.second);
    });
    const bool is_known = !tells || orders_++ != left_out;
    if (is_known) join(clocks_[stream], mark.clock);
    Gpu::order(mark.inner, stream);
  }
  bool is_over(const Event& event) override {
    return event == nullptr || Gpu::is_over(static_cast<Mark*>(event.get())->inner);
  }
  void synchronize(const Event& event) override {
    if (event == nullptr) return;
    join(host_, static_cast<Mark*>(event.get())->clock);
    Gpu::synchronize(static_cast<Mark*>(event.get())->inner);
  }
  void zero(void* memory, std::size_t bytes) override {
    accesses("zeros", current(), {}, {{memory, bytes}});
    Gpu::zero(memory, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    const bool here = bytes > 0 && owns(from);
    accesses("a copy", current(), {{from, here ? bytes : 0}}, {{to, bytes}});
    Gpu::copy(to, from, bytes);
  }
  void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                 std::size_t bytes, std::size_t rows) override {
    std::vector<Range> reads, writes;
    for (std::size_t i = 0; i < rows; ++i) {
      reads.push_back({static_cast<const std::byte*>(from) + i * from_step, bytes});
      writes.push_back({static_cast<std::byte*>(to) + i * to_step, bytes});
    }
    launch("a copy of rows", current(), reads, writes,
           [=] { parallel::host_device().copy_rows(to, to_step, from, from_step, bytes, rows); });
  }
  void read(void* to, const void* from, std::size_t bytes) override {
    accesses("a copy to the host", current(), {{from, bytes}}, {});
    Gpu::read(to, from, bytes);
    join(host_, clocks_[current()]);
  }
  void convert(DataType from, const void* in, DataType to, void* out, std::size_t count) override {
    launch("a conversion", current(), {{in, count * size_of(from)}}, {{out, count * size_of(to)}},
           [=] { parallel::host_device().convert(from, in, to, out, count); });
  }
  void add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
           std::size_t count) override {
    const std::size_t bytes = count * size_of(type);
    launch("a sum", current(), {{values, bytes}, {before, before != nullptr ? bytes : 0}},
           {{to, bytes}},
           [=] { parallel::host_device().add(type, to, values, divisor, before, count); });
  }
  double sum_of_squares(DataType type, std::span<const Values> of) override {
    std::vector<Range> reads;
    for (const Values& v : of) reads.push_back({v.data, v.count * size_of(type)});
    double sum = 0;
    launch("a norm", current(), reads, {},
           [&] { sum = parallel::host_device().sum_of_squares(type, of); });
    synchronize(record(current()));
    return sum;
  }
  void update(const parallel::Optimizer& optimizer,
              const parallel::Optimizer::Slice& slice) override {
    const std::size_t bytes = slice.count * size_of(slice.type);
    std::vector<Range> writes{{slice.master, bytes}};
    for (void* const state : slice.state) {
      if (state != nullptr) writes.push_back({state, bytes});
    }
    if (slice.compute != nullptr) {
      writes.push_back({slice.compute, slice.count * size_of(slice.compute_type)});
    }
    launch("an update", current(), {{slice.gradient, slice.count * size_of(slice.gradient_type)}},
           writes, [&optimizer, slice] { optimizer.update(slice); });
  }

 private:
  using Clock = std::map<Stream, std::uint64_t>;  // the works of each stream that have happened
  struct Work {
    Stream stream = nullptr;
    std::uint64_t tick = 0;
    Clock clock;
  };
  struct Access {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
    Stream stream;
    std::uint64_t tick;
    std::string what;
  };
  struct Mark {
    Event inner;
    Clock clock;
  };

  static bool knows(const Clock& clock, Stream stream, std::uint64_t tick) {
    const auto at = clock.find(stream);
    return at != clock.end() && at->second >= tick;
  }
  static void join(Clock& to, const Clock& from) {
    for (const auto& [stream, tick] : from) to[stream] = std::max(to[stream], tick);
  }

  void accesses(std::string what, Stream stream, const std::vector<Range>& reads,
                const std::vector<Range>& writes) {
    Clock& clock = clocks_[stream];
    join(clock, host_);
    const std::uint64_t tick = ++clock[stream];
    const std::size_t before = accesses_.size();
    const auto add = [&](const Range& range, bool write) {
      if (range.bytes == 0) return;
      const auto* const begin = static_cast<const std::byte*>(range.begin);
      const auto* const end = begin + range.bytes;
      for (std::size_t i = 0; i < before; ++i) {
        const Access& a = accesses_[i];
        if (a.end <= begin || a.begin >= end || (!a.writes && !write)) continue;
        if (!knows(clock, a.stream, a.tick)) races_.push_back(a.what + " / " + what);
      }
      accesses_.push_back({begin, end, write, stream, tick, what});
    };
    for (const Range& r : reads) add(r, false);
    for (const Range& r : writes) add(r, true);
    named_[what] = {stream, tick, clock};
  }

  const std::shared_ptr<void> own_;  // the program's stream
  std::map<Stream, Clock> clocks_;
  Clock host_;
  std::vector<Access> accesses_;
  std::map<const std::byte*, std::size_t> sizes_;
  std::map<std::string, Work> named_;
  std::vector<std::string> races_;
  int orders_ = 0;
};

/// The ranks of a communicator on such a GPU. Its collectives are named by their label.
class CheckedAxis final : public parallel::Axis {
 public:
  CheckedAxis(Communicator& comm, CheckedGpu& gpu)
      : Axis(comm.rank(), comm.size()), comm_(comm), gpu_(gpu) {
    comm_.impl().gpus = streamed_gpus();
    use(gpu);
  }
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  std::unique_ptr<parallel::Pending::Work> begin(const Call& call) override {
    struct Work final : parallel::Pending::Work {
      explicit Work(Future f) : future(std::move(f)) {}
      bool ready() override { return future.ready(); }
      void wait() override { future.wait(); }
      Future future;
    };
    return std::make_unique<Work>(comm_.start(call));
  }
  void run_now(const Call& call) override { comm_.run(call); }
  void throw_failure() const override {
    if (const auto error = comm_.error()) throw *error;
  }
  void enqueue(const Call& call, parallel::Device::Stream stream) override {
    comm_.run(call, stream);
    const BufferSizes sizes = buffer_sizes(call, rank(), size());
    const bool is_message = call.collective == Collective::send_recv;
    const std::string_view what = !is_message  ? name(call.collective)
                                  : call.sends ? "send"
                                               : "recv";
    gpu_.launch(fmt::format("{} {}", what, call.count), stream, {{call.in, sizes.in}},
                {{call.out, sizes.out}}, nullptr);
  }

  Communicator& comm_;
  CheckedGpu& gpu_;
};

}  // namespace tutti::test
