#include "tools/demo/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "tools/output_of.h"

namespace tutti {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);  // for one library

// Arguments: the library, the number of ranks, the folder where they meet, batches, and of each
// size its bytes and calls. Rank 0 prints the library's name, and microseconds for each size.
// Whoever waits in vain ends by the alarm.
constexpr const char* kScript = R"python(
import os, signal, sys, time
library, ranks, folder, batches = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
sizes = [tuple(map(int, word.split(":"))) for word in sys.argv[5:]]
signal.alarm(25)

def measure(name, rank, call, barrier):
    import numpy
    times = []
    for size, calls in sizes:
        x = numpy.full(size // 4, rank + 1.0, numpy.float32)
        out = numpy.empty_like(x)
        run = call(x, out)
        lengths = []
        for _ in range(batches + 1):
            barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            lengths.append((time.perf_counter() - begin) / calls * 1e6)
        times.append(sorted(lengths[1:])[batches // 2])
    if rank == 0:
        print(name, *times, sep="\n", flush=True)

if library == "gloo":
    import torch
    torch.set_num_threads(1)
    import torch.distributed as dist
    rank = next((r for r in range(1, ranks) if os.fork() == 0), 0)
    if rank != 0:
        signal.alarm(25)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    def call(x, out):
        # In place, as PyTorch has it; zeros stay finite.
        t = torch.zeros(len(x))
        return lambda: dist.all_reduce(t)
    measure(f"Gloo, PyTorch {torch.__version__.split('+')[0]}", rank, call, dist.barrier)
    if rank == 0:
        for _ in range(1, ranks):
            os.wait()
    os._exit(0)
else:
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    if world.size != ranks:
        sys.exit(f"{world.size} ranks met of {ranks}: mpiexec and mpi4py are not of one MPI")
    def call(x, out):
        return lambda: world.Allreduce(x, out)
    words = MPI.Get_library_version().replace(",", " ").split()
    name = " ".join(words[:3]) if words[0] in ("Open", "Intel(R)") else words[0]
    measure(f"{name}, mpi4py", world.rank, call, world.Barrier)
)python";

/// What a peer has printed. `words`: the command, whose Python needs `module`.
DemoPeer hear(std::string name, const std::string& python, const std::string& module,
              const std::vector<std::string>& words) {
  DemoPeer peer{std::move(name), {}, {}};
  // A launcher's own complaint would say less.
  const Output import = output_of({python, "-c", "import " + module}, kPatience);
  if (import.status != 0) {
    peer.why_not = import.status == Output::kNotFound ? python + " is not there"
                   : import.complaint.empty()         ? "cannot import " + module
                                                      : import.complaint;
    return peer;
  }
  const Output output = output_of(words, kPatience);
  std::istringstream text(output.text);
  DemoTimes times{};
  std::string heard;
  if (output.status == 0 && std::getline(text, heard)) {
    for (double& time : times) text >> time;
  }
  if (!heard.empty() && text) {
    peer.name = heard;
    peer.times = times;
  } else if (output.status == Output::kNotFound) {
    peer.why_not = words.front() + " is not there";
  } else if (output.status == Output::kTooLong) {
    peer.why_not = fmt::format("no end within {} s", kPatience.count());
  } else {
    peer.why_not = output.complaint.empty() ? fmt::format("it ended with {}", output.status)
                                            : output.complaint;
  }
  return peer;
}

/// A folder, and what is in it, for as long as this lives.
class Folder {
 public:
  Folder() {
    if (mkdtemp(name_) == nullptr) name_[0] = '\0';
  }
  ~Folder() {
    ::unlink((name() + "/meeting").c_str());
    ::rmdir(name_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string name() const { return name_; }

 private:
  char name_[24] = "/tmp/tutti-demo-XXXXXX";
};

}  // namespace

std::vector<DemoPeer> measure_peers(const std::string& python, int ranks) {
  const Folder folder;
  const auto script = [&](const std::string& library) {
    std::vector<std::string> words{python,
                                   "-c",
                                   kScript,
                                   library,
                                   std::to_string(ranks),
                                   folder.name(),
                                   std::to_string(kDemoBatches)};
    for (const std::size_t size : kDemoSizes) {
      words.push_back(fmt::format("{}:{}", size, demo_calls(size)));
    }
    return words;
  };
  std::vector<std::string> mpi{"mpiexec", "-n", std::to_string(ranks)};
  const std::vector<std::string> program = script("mpi");
  mpi.insert(mpi.end(), program.begin(), program.end());
  // Open MPI's launchers refuse more ranks than cores, and the root user, unless they are told.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"}) {
    setenv(name, "1", 0);
  }
  setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  return {hear("Gloo in PyTorch", python, "torch.distributed", script("gloo")),
          hear("MPI by mpi4py", python, "mpi4py.MPI", mpi)};
}

}  // namespace tutti
