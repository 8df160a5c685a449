// Two jobs that are started apart (docs/weights.md): a trainer makes a new version of its weights
// every half second, and a server takes them, in a layout of its own. Start them in two terminals,
// in any order, with any numbers of ranks; end them, kill ranks, and start them again. A server
// with a third argument leaves after so many versions.
//
//     tutti run -n 4 --keep-going build/examples/weights train /tmp/meet
//     tutti run -n 2 --keep-going build/examples/weights serve /tmp/meet
#include <tutti/parallel/reshard/buffers.h>
#include <tutti/parallel/reshard/layout.h>
#include <tutti/parallel/weights/receiver.h>
#include <tutti/parallel/weights/sender.h>
#include <tutti/tutti.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

namespace reshard = tutti::parallel::reshard;
namespace weights = tutti::parallel::weights;

const reshard::Tensor kMatrix{"w", tutti::DataType::float32, {1024, 1024}};

/// The trainer's ranks have rows, the server's have columns.
reshard::Layout layout_of(int ranks, int dimension) {
  reshard::Layout layout(ranks);
  add_sharded(layout, kMatrix, {.mesh = {ranks}, .placements = {reshard::shard(dimension)}});
  return layout;
}

void train(tutti::Communicator& job, const std::string& folder) {
  const reshard::Layout layout = layout_of(job.size(), 0);
  reshard::Buffers mine(layout, job.rank());
  auto* const rows = static_cast<float*>(mine.pointers()[0]);
  const std::uint64_t count = layout.bytes_of(job.rank())[0] / sizeof(float);
  weights::Sender sender(job, layout, weights::folder_place(folder));
  for (std::uint64_t version = 1;; ++version) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a step
    for (std::uint64_t i = 0; i < count; ++i) rows[i] = static_cast<float>(version);
    try {
      const int receivers = sender.send(version, mine.sources()).receivers;
      if (job.rank() == 0) std::printf("version %lu: %d ranks have it\n", version, receivers);
    } catch (const tutti::Error& error) {
      std::printf("rank %d: %s\n", job.rank(), error.what());
      if (job.error()) return;  // a rank of this job
    }
    std::fflush(stdout);
  }
}

void serve(tutti::Communicator& job, const std::string& folder, std::uint64_t versions) {
  const reshard::Layout layout = layout_of(job.size(), 1);
  weights::Receiver receiver(job, layout, weights::folder_place(folder));
  for (; versions > 0; --versions) {
    try {
      receiver.receive();
    } catch (const tutti::Error& error) {
      std::printf("rank %d: %s\n", job.rank(), error.what());
      if (job.error()) return;  // a rank of this job; resume() would go on without it
    }
    const auto* const columns = static_cast<const float*>(receiver.pointers()[0]);
    std::printf("rank %d serves version %lu: %.0f\n", job.rank(), receiver.version(), columns[0]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "weights train|serve FOLDER [VERSIONS]\n"), 2;
  const std::uint64_t versions = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : UINT64_MAX;
  auto job = tutti::Communicator::from_environment();
  argv[1] == std::string("train") ? train(job, argv[2]) : serve(job, argv[2], versions);
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "weights: %s\n", error.what());
  return 1;
}
