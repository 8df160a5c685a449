// A program that closes all descriptors above 2, Tutti's among them, hears so, and no rank waits in
// vain. Exits with 1 when something is not right.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti.h"

int main() try {
  using namespace std::chrono_literals;
  tutti::Options options;
  options.timeout = 60s;  // longer than what is allowed below
  auto comm = tutti::Communicator::from_environment(options);
  std::vector<float> x(1000);
  comm.all_to_all(x.data(), std::vector<float>(x.size() * 4).data(), 1, tutti::DataType::float32);
  comm.barrier();
  const bool closes = comm.rank() == 0;
  if (closes) closefrom(3);
  const auto begun = std::chrono::steady_clock::now();
  int wrong = 1;
  try {
    for (int i = 0; i < 1000; ++i)
      comm.all_reduce(x.data(), x.data(), 1000, tutti::DataType::float32);
    fmt::print(stderr, "rank {}: there is no error\n", comm.rank());
  } catch (const tutti::Error& e) {
    const std::string text = e.what();
    const bool system =
        e.code() == tutti::ErrorCode::system && text.find("descriptors") != std::string::npos;
    const bool lost = e.code() == tutti::ErrorCode::peer_lost;
    wrong = (closes ? system : system || lost) ? 0 : 1;
    if (wrong != 0) fmt::print(stderr, "rank {}: {}: {}\n", comm.rank(), name(e.code()), text);
  }
  if (std::chrono::steady_clock::now() - begun > 15s) {
    fmt::print(stderr, "rank {}: it takes too long\n", comm.rank());
    wrong = 1;
  }
  std::fflush(nullptr);
  _exit(wrong);
} catch (const std::exception& e) {
  fmt::print(stderr, "error: {}\n", e.what());
  return 2;
}
