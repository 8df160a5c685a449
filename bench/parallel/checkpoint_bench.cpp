// What a checkpoint costs beside the disk, and beside the steps of training:
//
//     tutti run -n 4 build/bench/checkpoint_bench FOLDER [MIB]
//
// Each rank has MIB (256) of float32. In turn: the ranks write that many bytes each as dd does, a
// MiB at a time, with an fsync at the end; and they save a checkpoint. Then steps (a loop over
// numbers that stay in the cache, and an all_reduce of 4 MiB) while nothing is written, and while
// another thread writes a checkpoint. Medians; the rank that takes longest counts. FOLDER has room
// for three checkpoints; the program removes what it has written.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/median.h"
#include "parallel/axis.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tutti.h"

namespace {

using namespace tutti::parallel;
using tutti::Communicator;
using tutti::DataType;
using tutti::median;
using tutti::ReduceKind;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kTurns = 5, kSteps = 15;

/// What `body` takes on the rank that takes longest.
template <class Body>
double seconds(Communicator& comm, Body&& body) {
  comm.barrier();
  const auto begin = Clock::now();
  body();
  double mine = std::chrono::duration<double>(Clock::now() - begin).count(), longest = 0;
  comm.all_reduce(&mine, &longest, 1, DataType::float64, ReduceKind::max);
  return longest;
}

void write_as_dd(const std::string& path, const std::vector<float>& values) {
  constexpr std::size_t kPiece = 1 << 20;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const auto* const data = reinterpret_cast<const char*>(values.data());
  const std::size_t bytes = values.size() * sizeof(float);
  bool right = fd >= 0;
  for (std::size_t at = 0; right && at < bytes; at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    right = write(fd, data + at, n) == static_cast<ssize_t>(n);
  }
  right = right && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  if (!right) {
    std::perror(path.c_str());
    std::exit(1);
  }
}

class Step {
 public:
  explicit Step(Communicator& comm) : comm_(comm), numbers_(4096, 1), in_(1 << 20, 1), out_(in_) {}
  void run() {
    for (int pass = 0; pass < 40000; ++pass) {
      for (float& x : numbers_) x = x * 0.999F + 0.001F;
    }
    comm_.all_reduce(in_.data(), out_.data(), in_.size(), DataType::float32);
  }

 private:
  Communicator& comm_;
  std::vector<float> numbers_, in_, out_;
};

void measure(Communicator& comm, const std::string& folder, std::size_t mib) {
  std::vector<float> values((mib << 20) / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 65521) + static_cast<float>(comm.rank());
  }
  const std::vector parts{TensorPart::whole(fmt::format("of rank {}", comm.rank()),
                                            DataType::float32, {values.size()}, values.data())};
  CommunicatorAxis axis(comm);
  CheckpointFolder checkpoints(folder + "/checkpoints", axis, {.keep = 1});
  const std::string own = fmt::format("{}/bytes-{}", folder, comm.rank());
  std::vector<double> raw, saved;
  std::uint64_t step = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    raw.push_back(seconds(comm, [&] { write_as_dd(own, values); }));
    fs::remove(own);
    saved.push_back(seconds(comm, [&] { checkpoints.save(++step, parts); }));
  }
  Step training(comm);
  const auto one = [&] { return seconds(comm, [&] { training.run(); }); };
  std::vector<double> quiet, writing;
  int checkpoints_written = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int i = 0; i < kSteps; ++i) quiet.push_back(one());
    checkpoints.start(++step, parts);
    for (std::uint32_t busy = 1; busy != 0;) {
      writing.push_back(one());
      const std::uint32_t mine = checkpoints.idle() ? 0 : 1;
      comm.all_reduce(&mine, &busy, 1, DataType::uint32, ReduceKind::max);
    }
    checkpoints.wait();
    ++checkpoints_written;
  }
  if (comm.rank() == 0) {
    const double all = static_cast<double>(mib << 20) * comm.size() / 1e9;
    fmt::print("{} ranks, {:.2f} GB\n", comm.size(), all);
    fmt::print("as dd writes     {:6.2f} s  {:6.2f} GB/s\n", median(raw), all / median(raw));
    fmt::print("checkpoint       {:6.2f} s  {:6.2f} GB/s  {:.0f} %\n", median(saved),
               all / median(saved), 100 * median(raw) / median(saved));
    fmt::print("a step           {:6.1f} ms\n", 1e3 * median(quiet));
    fmt::print(
        "while one is written {:6.1f} ms, {:.2f} times as long ({} steps of {} checkpoints)\n",
        1e3 * median(writing), median(writing) / median(quiet), writing.size(),
        checkpoints_written);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: tutti run -n RANKS checkpoint_bench FOLDER [MIB]\n");
    return 2;
  }
  try {
    Communicator comm = Communicator::from_environment();
    const std::string folder = fmt::format("{}/checkpoint_bench", argv[1]);
    if (comm.rank() == 0) fs::create_directories(folder);
    comm.barrier();
    measure(comm, folder, argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 256);
    comm.barrier();
    if (comm.rank() == 0) fs::remove_all(folder);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", e.what());
    return 1;
  }
}
