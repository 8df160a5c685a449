// A rank that does what it reads, for tests that form communicators of processes, kill some and
// start others. It answers each line of its standard input with one line:
//
//     handle                          HANDLE handle
//     reconfigure number ms handle... DONE number rank size microseconds, or FAILED code rank text
//     check seed                      RIGHT size, or LOST code rank text
//     calls                           CALLING, and when a call fails: LOST code rank text
//     start                           STARTED: calls that are under way during the next command
//     usage                           USAGE descriptors threads maps kilobytes
//
// After a reconfiguration no call of the old communicator may be left: it prints STUCK otherwise,
// and WRONG where data is not right, and ends with 4.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace {

using namespace tutti;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print(format, std::forward<Arguments>(arguments)...);
  std::fflush(stdout);
}
void say_error(const char* what, const Error& error) {
  say("{} {} {} {}\n", what, name(error.code()), error.rank(), error.what());
}
[[noreturn]] void wrong(const std::string& what) {
  say("WRONG {}\n", what);
  std::exit(4);
}

long files_in(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

class ElasticRank {
 public:
  ElasticRank() {
    options_.rendezvous_timeout = 20s;
    comm_ = Communicator::alone(options_);
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "handle") {
      say("HANDLE {}\n", comm_.handle());
    } else if (command == "reconfigure") {
      reconfigure(words);
    } else if (command == "check") {
      unsigned seed = 0;
      words >> seed;
      try {
        check(seed);
        say("RIGHT {}\n", comm_.size());
      } catch (const Error& error) {
        say_error("LOST", error);
      }
    } else if (command == "calls") {
      call_until_an_error();
    } else if (command == "start") {
      start();
    } else if (command == "usage") {
      say_usage();
    } else {
      std::exit(2);
    }
  }

 private:
  void reconfigure(std::istringstream& words) {
    std::uint64_t number = 0;
    long milliseconds = 0;
    words >> number >> milliseconds;
    std::vector<std::string> handles;
    for (std::string handle; words >> handle;) handles.push_back(handle);
    Options options = options_;
    options.rendezvous_timeout = std::chrono::milliseconds(milliseconds);
    const auto begun = Clock::now();
    try {
      comm_ = comm_.reconfigure(handles, number, options);
    } catch (const Error& error) {
      return say_error("FAILED", error);
    }
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun);
    for (Future& future : under_way_) {
      try {
        if (!future.wait_for(5s)) wrong("STUCK: a call of the old communicator goes on");
      } catch (const Error&) {
      }
    }
    under_way_.clear();
    say("DONE {} {} {} {}\n", number, comm_.rank(), comm_.size(), took.count());
  }

  /// What no rank has in common with another one, and no position with another one.
  static std::int64_t value(unsigned seed, int rank, std::size_t i) {
    return static_cast<std::int64_t>(seed) * 1'000'003 + (rank + 1) * 7'919LL +
           static_cast<std::int64_t>(i) * 13;
  }

  void check(unsigned seed) {
    const int rank = comm_.rank(), size = comm_.size();
    for (const std::size_t count : {1UL, 777UL, 100'000UL}) {
      std::vector<std::int64_t> numbers(count);
      for (std::size_t i = 0; i < count; ++i) numbers[i] = value(seed, rank, i);
      std::vector<std::int64_t> all(count * static_cast<std::size_t>(size));
      comm_.all_gather(numbers.data(), all.data(), count, DataType::int64);
      for (int r = 0; r < size; ++r) {
        for (std::size_t i = 0; i < count; ++i) {
          if (all[static_cast<std::size_t>(r) * count + i] != value(seed, r, i)) {
            wrong(fmt::format("all_gather of {}: rank {}'s element {} on rank {} of {}", count, r,
                              i, rank, size));
          }
        }
      }
      comm_.all_reduce(numbers);
      for (std::size_t i = 0; i < count; ++i) {
        std::int64_t sum = 0;
        for (int r = 0; r < size; ++r) sum += value(seed, r, i);
        if (numbers[i] != sum) {
          wrong(fmt::format("all_reduce of {}: element {} on rank {} of {}", count, i, rank, size));
        }
      }
    }
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    std::vector<std::int64_t> to(3000, value(seed, rank, 5)), from(3000);
    group([&] {
      comm_.send(to.data(), to.size(), DataType::int64, next);
      comm_.recv(from.data(), from.size(), DataType::int64, previous);
    });
    if (from.back() != value(seed, previous, 5)) wrong(fmt::format("the ring on rank {}", rank));
  }

  void call_until_an_error() {
    say("CALLING\n");
    try {
      for (unsigned seed = 1;; ++seed) check(seed);
    } catch (const Error& error) {
      say_error("LOST", error);
    }
  }

  void start() {
    try {
      sums_.assign(4, std::vector<float>(200'000, 1.0F));
      for (auto& sum : sums_) {
        under_way_.push_back(comm_.start({.collective = Collective::all_reduce,
                                          .in = sum.data(),
                                          .out = sum.data(),
                                          .count = sum.size(),
                                          .type = DataType::float32}));
      }
      // A message that never comes.
      never_.resize(100);
      under_way_.push_back(comm_.start({.collective = Collective::send_recv,
                                        .out = never_.data(),
                                        .count = never_.size(),
                                        .type = DataType::float32,
                                        .peer = (comm_.rank() + 1) % comm_.size()}));
    } catch (const Error&) {  // a rank is gone already
    }
    say("STARTED\n");
  }

  static void say_usage() {
    std::ifstream maps("/proc/self/maps");
    long lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    long total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    say("USAGE {} {} {} {}\n", files_in("/proc/self/fd"), files_in("/proc/self/task"), lines,
        resident * (sysconf(_SC_PAGESIZE) / 1024));
  }

  Options options_;
  // Their memory outlives the calls, and so does that of the futures.
  std::vector<std::vector<float>> sums_;
  std::vector<float> never_;
  std::vector<Future> under_way_;
  Communicator comm_;
};

}  // namespace

int main() {
  try {
    ElasticRank rank;
    for (std::string line; std::getline(std::cin, line);) rank.obey(line);
    return 0;
  } catch (const std::exception& error) {
    say("WRONG {}\n", error.what());
    return 4;
  }
}
