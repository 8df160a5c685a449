// Ranks of several hosts that have so few descriptors that not all of their connections can come
// about: each of them either calls all_to_all() rightly, or hears soon that descriptors lack, and
// how many it may have; none waits for ever. Exits with 1 when something is not right.
//
//     few_descriptors_rank LIMIT
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti.h"

int main(int, char** argv) {
  using namespace std::chrono_literals;
  const rlim_t most = std::strtoull(argv[1], nullptr, 10);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_NOFILE, &limit);
  alarm(60);
  const char* const rank = std::getenv("TUTTI_RANK");
  const auto begun = std::chrono::steady_clock::now();
  std::string text;
  bool system = false, lost = false;
  try {
    tutti::Options options;
    options.rendezvous_timeout = 15s;
    auto comm = tutti::Communicator::from_environment(options);
    const auto n = static_cast<std::size_t>(comm.size());
    std::vector<std::uint32_t> in(10'000 * n), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = static_cast<std::uint32_t>(1'000'000 * comm.rank()) + static_cast<std::uint32_t>(i);
    }
    comm.all_to_all(in.data(), out.data(), 10'000, tutti::DataType::uint32);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t from = i / 10'000, at = i % 10'000 + 10'000 * comm.rank();
      if (out[i] != static_cast<std::uint32_t>(1'000'000 * from + at)) {
        fmt::print(stderr, "rank {}: element {} is {}\n", rank, i, out[i]);
        return 1;
      }
    }
    comm.barrier();
  } catch (const tutti::Error& e) {
    text = e.what();
    system = e.code() == tutti::ErrorCode::system;
    lost = e.code() == tutti::ErrorCode::peer_lost;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  fmt::print(stderr, "rank {} ({} descriptors), {:.1f} s: {}\n", rank, most, took.count(),
             text.empty() ? "fine" : text);
  if (text.empty()) return 0;
  const bool names_them = text.find("descriptors") != std::string::npos &&
                          text.find(fmt::format("all the {} file", most)) != std::string::npos;
  if ((!system || !names_them) && !lost) return 1;
  return took < 14s ? 0 : 1;
}
