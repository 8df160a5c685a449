// The clock is the host's, around the calls and the wait for their streams; on host memory there
// is nothing to wait for. Single iterations (-I) on a GPU are timed by events there.
#include "bench/perf/timing.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

namespace tutti::perf {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The moments before and after every iteration, on each stream.
class Moments {
 public:
  Moments(const Library::Streams& streams, int iterations) : width_(streams.size()) {
    for (int i = 0; i < 2 * iterations; ++i) {
      for (const auto& stream : streams) events_.emplace_back(*stream);
    }
  }

  void record() {
    for (std::size_t s = 0; s < width_; ++s) events_[next_++].record();
  }

  // Microseconds of each iteration, on the stream that took longest.
  std::vector<double> iterations() const {
    std::vector<double> result;
    for (std::size_t i = 0; i < events_.size(); i += 2 * width_) {
      double longest = 0;
      for (std::size_t s = i; s < i + width_; ++s) {
        longest = std::max(longest, events_[s + width_].microseconds_since(events_[s]));
      }
      result.push_back(longest);
    }
    return result;
  }

 private:
  std::size_t width_;
  std::deque<gpu::Event> events_;
  std::size_t next_ = 0;
};

class Loop {
 public:
  Loop(const PerfOptions& options, std::span<RankCalls> ranks, std::size_t bytes, Library& library,
       Communicator& control)
      : options_(options),
        ranks_(ranks),
        bytes_(bytes),
        places_(bytes > 0 ? options.max_bytes / bytes : 1),
        library_(library),
        control_(control) {}

  Timing run() {
    // Kernels wait for those of other ranks, and nobody should be filling buffers meanwhile.
    if (!library_.streams().empty()) control_.barrier();
    for (int i = 0; i < options_.warmup; ++i) step([&] { iterate(i); });
    step([&] { library_.finish(); });
    Timing timing = options_.graph_launches > 0 ? time_graph() : time_iterations();
    step([&] { library_.check(); });
    control_.barrier();
    return timing;
  }

 private:
  // Barriers are not steps: a thread meets the others even after its library has failed.
  template <class Step>
  void step(Step&& what) {
    library_.attempt(what);
  }

  void iterate(int iteration) {
    const auto aggregate = static_cast<std::size_t>(options_.aggregate);
    const std::size_t first = static_cast<std::size_t>(iteration) * aggregate;
    if (aggregate == 1) return call_once(ranks_, shift(first), library_);
    library_.group_start();
    for (std::size_t i = 0; i < aggregate; ++i) call_once(ranks_, shift(first + i), library_);
    library_.group_end();
  }
  std::size_t shift(std::size_t call) const { return call % places_ * bytes_; }

  Timing time_iterations() {
    Timing timing;
    const bool on_gpu = !library_.streams().empty();
    const bool stops_clock = options_.blocking == Blocking::barrier_after_iteration;
    const bool waits = options_.blocking != Blocking::off;
    const bool events = options_.per_iteration && on_gpu;
    std::optional<Moments> moments;
    step([&] {
      if (events) moments.emplace(library_.streams(), options_.iterations);
    });
    if (options_.per_iteration && !on_gpu) {
      timing.iterations.reserve(static_cast<std::size_t>(options_.iterations));
    }
    control_.barrier();

    const double cpu_start = thread_cpu_seconds();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < options_.iterations; ++i) {
      Clock::time_point iteration_start;
      if (options_.per_iteration || stops_clock) iteration_start = Clock::now();
      step([&] {
        if (events) moments->record();
        iterate(i);
        if (events) moments->record();
        if (waits) library_.finish();
      });
      if (options_.blocking == Blocking::barrier_after_call) control_.barrier();
      if (options_.per_iteration || stops_clock) {
        const double seconds = seconds_since(iteration_start);
        if (!on_gpu && options_.per_iteration) timing.iterations.push_back(seconds * 1e6);
        if (stops_clock) {
          timing.seconds += seconds;
          control_.barrier();
        }
      }
    }
    step([&] { library_.finish(); });
    if (!stops_clock) timing.seconds = seconds_since(start);
    timing.cpu_seconds = thread_cpu_seconds() - cpu_start;

    step([&] {
      if (events) timing.iterations = moments->iterations();
    });
    timing.iterations.resize(options_.per_iteration ? options_.iterations : 0);
    for (double& time : timing.iterations) time /= options_.aggregate;
    const double calls = static_cast<double>(options_.iterations) * options_.aggregate;
    timing.seconds /= calls;
    timing.cpu_seconds /= calls;
    return timing;
  }

  // All iterations are one graph, which is launched several times.
  Timing time_graph() {
    std::deque<gpu::Graph> graphs;
    step([&] {
      try {
        for (const auto& stream : library_.streams()) graphs.emplace_back(*stream);
        for (int i = 0; i < options_.iterations; ++i) iterate(i);
        for (gpu::Graph& graph : graphs) graph.finish();
      } catch (...) {
        graphs.clear();  // the streams are no longer recorded when the failure is dealt with
        throw;
      }
      library_.finish();  // the graphs have been uploaded
    });
    control_.barrier();

    Timing timing;
    const double cpu_start = thread_cpu_seconds();
    const Clock::time_point start = Clock::now();
    step([&] {
      for (int i = 0; i < options_.graph_launches; ++i) {
        for (const gpu::Graph& graph : graphs) graph.launch();
      }
      library_.finish();
    });
    const double calls =
        static_cast<double>(options_.iterations) * options_.aggregate * options_.graph_launches;
    timing.seconds = seconds_since(start) / calls;
    timing.cpu_seconds = (thread_cpu_seconds() - cpu_start) / calls;
    return timing;
  }

  const PerfOptions& options_;
  std::span<RankCalls> ranks_;
  std::size_t bytes_, places_;
  Library& library_;
  Communicator& control_;
};

}  // namespace

Timing time_calls(const PerfOptions& options, std::span<RankCalls> ranks, std::size_t bytes,
                  Library& library, Communicator& control) {
  return Loop(options, ranks, bytes, library, control).run();
}

void call_once(std::span<RankCalls> ranks, std::size_t shift, Library& library) {
  const auto calls_of = [&](RankCalls& rank) {
    return rank.call.on(rank.send + shift, rank.receive + shift);
  };
  if (ranks.size() == 1) {
    const std::span<const Call> calls = calls_of(ranks.front());
    if (calls.size() == 1) return library.run(0, calls.front());
  }
  library.group_start();
  for (std::size_t local = 0; local < ranks.size(); ++local) {
    for (const Call& call : calls_of(ranks[local])) library.run(local, call);
  }
  library.group_end();
}

}  // namespace tutti::perf
