// The collective matrix: one rank of it as a process, started by `tutti run`, mpirun, ..., or with
// --threads all ranks as threads of one. Exits with 1 when a result is wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>

#include "tests/comm/matrix.h"
#include "tests/support/thread_ranks.h"

namespace {

/// Whether all results were right, on all ranks.
bool run(tutti::Communicator& comm, const tutti::test::Matrix& matrix) {
  const tutti::test::Tally tally = run_matrix(comm, matrix);
  std::uint64_t wrong = 0;
  comm.all_reduce(&tally.wrong, &wrong, 1, tutti::DataType::uint64);
  if (tally.wrong > 0) fmt::print(stderr, "{}\n", tally.first);
  if (comm.rank() == 0) {
    fmt::print("{} ranks: {} calls each, {} wrong\n", comm.size(), tally.calls, wrong);
  }
  return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti;
  CLI::App app("One rank of the collective matrix");
  bool window = false;
  bool large = false;
  bool brief = false;
  int threads = 0;
  test::Matrix matrix;
  app.add_flag("--window", window, "buffers from tutti::allocate instead of malloc");
  app.add_flag("--large", large, "16 MiB in all, instead of small sizes");
  app.add_flag("--brief", brief, "four types, three operators");
  app.add_option("--every", matrix.every,
                 "one case of so many, an odd number: cases in place alternate with others")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", threads,
                 "this many ranks as threads, instead of this process as one");
  CLI11_PARSE(app, argc, argv);
  try {
    const Options options;
    matrix.window_memory = window;
    matrix.bytes = test::boundary_sizes(options);
    if (brief) {
      matrix.types = {DataType::int8, DataType::int64, DataType::bfloat16, DataType::float32};
      matrix.kinds = {ReduceKind::sum, ReduceKind::pre_multiplied_sum, ReduceKind::avg};
    }
    const auto run_rank = [&](Communicator& comm) {
      test::Matrix mine = matrix;
      if (large) mine.bytes = {(std::size_t{16} << 20) / static_cast<std::size_t>(comm.size())};
      return run(comm, mine);
    };
    std::atomic<bool> right = true;
    if (threads > 0) {
      test::run_thread_ranks(threads, options, [&](Communicator& comm) {
        if (!run_rank(comm)) right = false;
      });
    } else {
      Communicator comm = Communicator::from_environment(options);
      right = run_rank(comm);
    }
    return right ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
