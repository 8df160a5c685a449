// put_perf: puts with signals between the windows of ranks 0 and 1, by size. Where the ranks share
// memory it measures, in turn with each, the least that can be done instead:
//
//     time     a put with its signal, there and back; half of that. Limit: the bytes and a counter
//              in one cache line (longer ones in front of it), a store and a look.
//     stream   puts one after the other, and a signal at the end. Limit: memcpy() to the same
//              place.
//
// The reader looks at each message; all bytes are checked once a size.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/median.h"
#include "core/settings.h"
#include "tools/command_line/usage_error.h"
#include "tutti.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

struct PutOptions {
  std::string least = "8", most = "4M";
  std::size_t factor = 2;
  int iterations = 1000, warmup = 50, turns = 9;
  int memory = 2;  // as -R of the other programs
  bool threads = false;
};

struct alignas(64) Line {
  std::atomic<std::uint64_t> count;
  std::byte data[56];
};
constexpr std::size_t kLineBytes = sizeof(Line);

/// So many calls of a size, that a turn takes milliseconds.
int calls_of(const PutOptions& options, std::size_t bytes) {
  const std::size_t budget = std::size_t{256} << 20;
  const auto fit = static_cast<int>(
      std::min<std::size_t>(budget / std::max(bytes, std::size_t{1}), std::size_t{1} << 30));
  return std::clamp(fit, std::min(options.iterations, 10), options.iterations);
}

class PutBench {
 public:
  PutBench(Communicator& comm, const PutOptions& options)
      : comm_(comm),
        options_(options),
        rank_(comm.rank()),
        most_(parse_bytes(options.most)),
        // Room for the peer's puts or copies, and for the line of the limit, at the end.
        room_((most_ + 4095) / 4096 * 4096) {
    const std::size_t bytes = room_ + kLineBytes;
    memory_ = options.memory == 0 ? static_cast<std::byte*>(std::aligned_alloc(4096, room_ + 4096))
                                  : static_cast<std::byte*>(allocate(bytes));
    source_ = static_cast<std::byte*>(allocate(room_));
    std::memset(memory_, 0, bytes);
    for (std::size_t i = 0; i < room_; ++i) source_[i] = value(rank_, i);
    window_ = comm.window(memory_, bytes);
    if (rank_ < 2) theirs_ = window_.map(1 - rank_);
  }
  ~PutBench() {
    window_.end();
    deallocate(source_);
    options_.memory == 0 ? std::free(memory_) : deallocate(memory_);
  }
  PutBench(const PutBench&) = delete;
  PutBench& operator=(const PutBench&) = delete;

  void run() {
    if (rank_ == 0) {
      fmt::print("# {}; {} memory; medians of {} turns, in turn with the limit\n",
                 comm_.transports(), options_.memory == 0 ? "malloc" : "window", options_.turns);
      fmt::print("#{:>10} {:>9} {:>9} {:>6} {:>10} {:>10} {:>6} {:>7}\n", "size", "time", "limit",
                 "ratio", "stream", "memcpy", "ratio", "#wrong");
      fmt::print("#{:>10} {:>9} {:>9} {:>6} {:>10} {:>10} {:>6}\n", "(B)", "(us)", "(us)", "",
                 "(GB/s)", "(GB/s)", "");
      std::fflush(stdout);
    }
    const std::size_t least = std::max<std::size_t>(parse_bytes(options_.least), 1);
    for (std::size_t bytes = least; bytes <= most_; bytes *= options_.factor) row(bytes);
    comm_.barrier();
  }

 private:
  static std::byte value(int rank, std::size_t i) {
    return static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(rank) * 101) & 0xff);
  }

  void row(std::size_t bytes) {
    std::vector<double> times, limits, streams, copies;
    const int calls = calls_of(options_, bytes);
    for (int turn = 0; turn < options_.turns; ++turn) {
      comm_.barrier();
      if (rank_ < 2) {
        times.push_back(there_and_back(bytes, calls));
        if (theirs_ != nullptr) limits.push_back(limit_there_and_back(bytes, calls));
        streams.push_back(stream(bytes, calls));
        if (theirs_ != nullptr) copies.push_back(limit_stream(bytes, calls));
      }
    }
    const std::size_t wrong = check(bytes);
    if (rank_ != 0) return;
    const auto number = [](double n, int digits) { return fmt::format("{:.{}f}", n, digits); };
    const auto rate = [&](double n) { return number(n, n < 1 ? 4 : 2); };  // of slow networks, too
    const double time = median(times), stream = median(streams);
    std::string limit = "-", ratio = "-", copy = "-", share = "-";
    if (theirs_ != nullptr) {
      limit = number(median(limits), 3);
      ratio = number(time / median(limits), 2);
      copy = rate(median(copies));
      share = number(stream / median(copies), 2);
    }
    fmt::print(" {:>10} {:>9} {:>9} {:>6} {:>10} {:>10} {:>6} {:>7}\n", bytes, number(time, 3),
               limit, ratio, rate(stream), copy, share, wrong);
    std::fflush(stdout);
  }

  /// A reader looks at the message; its last byte is the number of the call.
  void look(const std::byte* message, std::size_t bytes, std::uint64_t call) {
    if (static_cast<const volatile std::byte*>(message)[bytes - 1] !=
        static_cast<std::byte>(call)) {
      ++late_;
    }
  }

  template <class Send, class Receive>
  double ping_pong(int calls, Send&& send, Receive&& receive) {
    Clock::time_point begun;
    for (int i = -options_.warmup; i < calls; ++i) {
      if (i == 0) begun = Clock::now();
      if (rank_ == 1) receive();
      send();
      if (rank_ == 0) receive();
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / calls / 2;
  }

  double there_and_back(std::size_t bytes, int calls) {
    const int peer = 1 - rank_;
    std::uint64_t sent = 0, received = 0;
    return ping_pong(
        calls,
        [&] {
          source_[bytes - 1] = static_cast<std::byte>(++sent);
          window_.put_signal(peer, 0, source_, bytes);
        },
        [&] {
          window_.wait_signal(peer);
          look(memory_, bytes, ++received);
        });
  }

  double limit_there_and_back(std::size_t bytes, int calls) {
    Line& out = *reinterpret_cast<Line*>(theirs_ + room_);
    Line& in = *reinterpret_cast<Line*>(memory_ + room_);
    const bool fits = bytes <= sizeof out.data;
    std::byte* const to = fits ? out.data : theirs_;
    std::uint64_t received = 0, sent = 0;
    return ping_pong(
        calls,
        [&] {
          source_[bytes - 1] = static_cast<std::byte>(++sent);
          std::memcpy(to, source_, bytes);
          out.count.store(++limit_sent_, std::memory_order_release);
        },
        [&] {
          ++limit_received_;
          for (int looks = 0; in.count.load(std::memory_order_acquire) < limit_received_;) {
            if (++looks > 1000) std::this_thread::yield();
          }
          look(fits ? in.data : memory_, bytes, ++received);
        });
  }

  /// GB/s.
  template <class Copy>
  double one_way(std::size_t bytes, int calls, Copy&& copy) {
    Clock::time_point begun;
    if (rank_ == 0) {
      for (int i = -std::min(options_.warmup, 3); i < calls; ++i) {
        if (i == 0) begun = Clock::now();
        copy();
      }
      window_.signal(1);
      window_.wait_signal(1);
    } else {
      window_.wait_signal(0);
      window_.signal(0);
    }
    return static_cast<double>(bytes) * calls /
           std::chrono::duration<double, std::nano>(Clock::now() - begun).count();
  }
  double stream(std::size_t bytes, int calls) {
    return one_way(bytes, calls, [&] { window_.put(1, 0, source_, bytes); });
  }
  double limit_stream(std::size_t bytes, int calls) {
    return one_way(bytes, calls, [&] {
      std::memcpy(theirs_, source_, bytes);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    });
  }

  /// Bytes that are not as they were put, of both ranks.
  std::size_t check(std::size_t bytes) {
    std::uint64_t wrong = late_;
    if (rank_ < 2) {
      source_[bytes - 1] = value(rank_, bytes - 1);
      window_.put_signal(1 - rank_, 0, source_, bytes);
      window_.wait_signal(1 - rank_);
      for (std::size_t i = 0; i < bytes; ++i) wrong += memory_[i] != value(1 - rank_, i) ? 1 : 0;
    }
    comm_.all_reduce(&wrong, &wrong, 1, DataType::uint64);
    all_wrong_ += wrong;
    late_ = 0;
    return wrong;
  }

 public:
  bool is_right() const { return all_wrong_ == 0; }

 private:
  Communicator& comm_;
  const PutOptions& options_;
  const int rank_;
  const std::size_t most_, room_;
  std::byte* memory_ = nullptr;
  std::byte* source_ = nullptr;
  Window window_;
  std::byte* theirs_ = nullptr;  // where the ranks share memory
  std::uint64_t limit_sent_ = 0, limit_received_ = 0;
  std::uint64_t late_ = 0, all_wrong_ = 0;
};

int run_rank(Communicator& comm, const PutOptions& options) {
  try {
    if (comm.size() < 2) {
      throw Error(ErrorCode::invalid_argument,
                  "put_perf measures two ranks: start it with `tutti run -n 2`, or with --threads");
    }
    PutBench bench(comm, options);
    bench.run();
    return bench.is_right() ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "# error: rank {}: {}\n", comm.rank(), e.what());
    comm.abort(e.what());
    return 1;
  }
}

int run(const PutOptions& options) {
  if (!options.threads) {
    Communicator comm = Communicator::from_environment();
    return run_rank(comm, options);
  }
  std::vector<Communicator> comms = Communicator::create_local(2);
  int other = 0;
  std::jthread thread([&] { other = run_rank(comms[1], options); });
  const int mine = run_rank(comms[0], options);
  thread.join();
  return std::max(mine, other);
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  tutti::perf::PutOptions options;
  CLI::App app(
      "put_perf: times and checks puts with signals between the windows of two ranks, beside the "
      "least that can be done in shared memory.",
      "put_perf");
  app.add_option("-b,--minbytes", options.least, "smallest size; suffixes K, M, G")
      ->capture_default_str();
  app.add_option("-e,--maxbytes", options.most, "largest size")->capture_default_str();
  app.add_option("-f,--stepfactor", options.factor, "from size to size: multiply by this")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  app.add_option("-n,--iters", options.iterations, "timed calls, fewer of long ones")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmup, "calls before them")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-N,--run_cycles", options.turns, "turns, of which the median counts")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-R,--local_register", options.memory, "0: memory from malloc; 2: window memory")
      ->check(CLI::IsMember({0, 2}))
      ->capture_default_str();
  app.add_flag("--threads", options.threads, "two threads of this process are the ranks");
  try {
    app.parse(argc, argv);
    if (tutti::parse_bytes(options.most) == 0) {
      throw tutti::Error(tutti::ErrorCode::invalid_argument,
                         "--maxbytes is 0, but a put has at least one byte");
    }
    if (tutti::parse_bytes(options.least) > tutti::parse_bytes(options.most)) {
      throw tutti::Error(tutti::ErrorCode::invalid_argument,
                         fmt::format("--minbytes {} is larger than --maxbytes {}; pass -b and -e "
                                     "together",
                                     options.least, options.most));
    }
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::Error& error) {
    fmt::print(stderr, "put_perf: {} (--help lists the options)\n", tutti::usage_error(app, error));
    return 2;
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "put_perf: {} (--help lists the options)\n", error.what());
    return 2;
  }
  try {
    return tutti::perf::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "# error: {}\n", e.what());
    return 1;
  }
}
