// What it takes to bring weights from one layout into another, beside what programs do by hand:
//
//     tutti run -n 4 build/bench/reshard_bench [MIB]          FSDP over n ranks -> TP over n/2 of
//     them tutti run -n 8 build/bench/reshard_bench [MIB] apart    FSDP over n/2 -> TP over the
//     others
//
// A model of about MIB (1024) of bfloat16. In turn:
//  - the reshard, from bound memory and in messages;
//  - an all_gather of each unit, from which ranks copy their slices (not `apart`);
//  - files in /dev/shm: each rank writes its shards, and ranks read their slices (not `apart`);
//  - as many bytes by memcpy, each receiver at the same time.
// Medians; the rank that takes longest counts. Each turn has other weights, and every result is
// compared.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/median.h"
#include "parallel/reshard/buffers.h"
#include "parallel/reshard/reshard.h"
#include "parallel/reshard/verify.h"
#include "tutti.h"

namespace {

using namespace tutti::parallel::reshard;
using tutti::Communicator;
using tutti::DataType;
using tutti::median;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 7;
constexpr std::uint64_t kHidden = 2048, kWide = 5632;

struct Block {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<int> cut;  // dimension that tensor parallelism cuts
};

std::vector<Block> model_of(std::uint64_t mib) {
  std::vector<Block> blocks;
  std::uint64_t elements = 0;
  for (int layer = 0; elements * 2 < mib << 20; ++layer) {
    Block b{fmt::format("layer {}", layer), {}, {}};
    const auto add = [&](const char* name, std::vector<std::uint64_t> shape, int cut) {
      b.tensors.push_back({fmt::format("{}.{}", layer, name), DataType::bfloat16, shape});
      b.cut.push_back(cut);
      elements += b.tensors.back().elements();
    };
    for (const char* name : {"q", "k", "v"}) add(name, {kHidden, kHidden}, 0);
    add("o", {kHidden, kHidden}, 1);
    for (const char* name : {"gate", "up"}) add(name, {kWide, kHidden}, 0);
    add("down", {kHidden, kWide}, 1);
    blocks.push_back(std::move(b));
  }
  return blocks;
}

/// The model's element, other ones in each turn.
std::uint16_t element(std::uint64_t tensor, std::uint64_t number, std::uint64_t turn) {
  return static_cast<std::uint16_t>((number * 40503 + tensor * 977 + turn * 131) >> 3);
}

template <class Use>
void each_row(const Layout& layout, int rank, const Use& use) {
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
    const TensorLayout& tensor = layout.tensors[t];
    for (const Piece& p : tensor.pieces) {
      if (p.rank != rank) continue;
      for (std::uint64_t row = p.box[0].begin; row < p.box[0].end; ++row) {
        use(t, p, row * tensor.shape[1] + p.box[1].begin,
            p.offset + (row - p.box[0].begin) * p.strides[0] * 2, p.box[1].size());
      }
    }
  }
}

void fill(const Layout& layout, int rank, std::uint64_t turn, const Buffers& memory) {
  each_row(layout, rank,
           [&](std::size_t t, const Piece& p, std::uint64_t first, std::uint64_t offset,
               std::uint64_t count) {
             auto* const to = reinterpret_cast<std::uint16_t*>(
                 static_cast<std::byte*>(memory.pointers()[p.buffer]) + offset);
             for (std::uint64_t i = 0; i < count; ++i) to[i] = element(t, first + i, turn);
           });
}

void check(const Layout& layout, int rank, std::uint64_t turn, const Buffers& memory) {
  each_row(layout, rank,
           [&](std::size_t t, const Piece& p, std::uint64_t first, std::uint64_t offset,
               std::uint64_t count) {
             const auto* const is = reinterpret_cast<const std::uint16_t*>(
                 static_cast<const std::byte*>(memory.pointers()[p.buffer]) + offset);
             for (std::uint64_t i = 0; i < count; ++i) {
               if (is[i] == element(t, first + i, turn)) continue;
               fmt::print(stderr, "rank {}: element {} of tensor {} is wrong\n", rank, first + i,
                          t);
               std::exit(1);
             }
           });
}

double seconds(Communicator& comm, const std::function<void()>& body) {
  comm.barrier();
  const auto begin = Clock::now();
  body();
  double mine = std::chrono::duration<double>(Clock::now() - begin).count(), longest = 0;
  comm.all_reduce(&mine, &longest, 1, DataType::float64, tutti::ReduceKind::max);
  return longest;
}

/// A unit's whole memory, as an all_gather of its shards or their files make it, at the rank.
using UnitMemory = std::function<const std::byte*(std::size_t unit)>;

/// Copies this rank's slices out of whole units, in which a tensor's elements follow each other.
void slice(const Layout& to, int rank, const std::vector<Block>& blocks, const Buffers& target,
           const UnitMemory& whole) {
  std::size_t t = 0;
  for (std::size_t u = 0; u < blocks.size(); ++u) {
    std::uint64_t offset = 0;
    const std::byte* const unit = whole(u);
    for (std::size_t i = 0; i < blocks[u].tensors.size(); ++i, ++t) {
      const TensorLayout& tensor = to.tensors[t];
      for (const Piece& p : tensor.pieces) {
        if (p.rank != rank) continue;
        auto* const out = static_cast<std::byte*>(target.pointers()[p.buffer]);
        const std::byte* const in = unit + offset * 2;
        if (p.box[1].size() == tensor.shape[1]) {
          std::memcpy(out, in + p.box[0].begin * tensor.shape[1] * 2, p.box.elements() * 2);
          continue;
        }
        for (std::uint64_t row = 0; row < tensor.shape[0]; ++row) {
          std::memcpy(out + row * p.strides[0] * 2,
                      in + (row * tensor.shape[1] + p.box[1].begin) * 2, p.box[1].size() * 2);
        }
      }
      offset += tensor.elements();
    }
  }
}

/// Files of all ranks' shards, by unit.
class Files {
 public:
  Files(Communicator& comm, const std::vector<std::uint64_t>& shard_bytes)
      : comm_(comm), shard_bytes_(shard_bytes) {
    comm.broadcast(&job_, &job_, 1, DataType::uint64, 0);
  }
  ~Files() { unlink(path(comm_.rank()).c_str()); }

  void save(const Buffers& source) const {
    const int fd = open(path(comm_.rank()).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (std::size_t u = 0; u < shard_bytes_.size(); ++u) {
      const auto* data = static_cast<const std::byte*>(source.pointers()[u]);
      for (std::uint64_t done = 0; done < shard_bytes_[u];) {
        const ssize_t n = write(fd, data + done, shard_bytes_[u] - done);
        if (n <= 0) std::exit(1);
        done += static_cast<std::uint64_t>(n);
      }
    }
    close(fd);
  }
  /// Opens the files of all ranks.
  void begin_load() {
    at_ = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      files_.push_back(open(path(r).c_str(), O_RDONLY | O_CLOEXEC));
    }
  }
  /// Reads the next unit's shards, one behind the other.
  void load(std::size_t u, std::byte* unit) {
    for (std::size_t r = 0; r < files_.size(); ++r) {
      std::byte* const place = unit + r * shard_bytes_[u];
      for (std::uint64_t done = 0; done < shard_bytes_[u];) {
        const ssize_t n =
            pread(files_[r], place + done, shard_bytes_[u] - done, static_cast<off_t>(at_ + done));
        if (n <= 0) std::exit(1);
        done += static_cast<std::uint64_t>(n);
      }
    }
    at_ += shard_bytes_[u];
  }
  void end_load() {
    for (const int fd : files_) close(fd);
    files_.clear();
  }

 private:
  std::string path(int rank) const { return fmt::format("/dev/shm/reshard-{}-{}", job_, rank); }
  Communicator& comm_;
  const std::vector<std::uint64_t>& shard_bytes_;
  std::uint64_t job_ = static_cast<std::uint64_t>(getpid());
  std::vector<int> files_;
  std::uint64_t at_ = 0;  // of the next unit, in each file
};

void measure(Communicator& comm, std::uint64_t mib, bool apart) {
  const int rank = comm.rank(), half = comm.size() / 2;
  std::vector<int> holders, needers;
  for (int r = 0; r < (apart ? half : comm.size()); ++r) holders.push_back(r);
  for (int r = 0; r < half; ++r) needers.push_back(apart ? half + r : r);
  const std::vector<Block> blocks = model_of(mib);
  Layout from(comm.size()), to(comm.size());
  for (const Block& b : blocks) {
    add_unit(from, b.name, b.tensors, holders);
    for (std::size_t i = 0; i < b.tensors.size(); ++i) {
      add_sharded(to, b.tensors[i], {{half}, {shard(b.cut[i])}, needers});
    }
  }
  const bool needs = rank == needers.front() || (rank > needers.front() && rank <= needers.back());
  Buffers source(from, rank), target(to, rank);
  std::uint64_t turn = 0;
  const auto begin = Clock::now();
  Reshard reshard(comm, from, to);
  const double made = std::chrono::duration<double>(Clock::now() - begin).count();
  const double bytes = static_cast<double>(to.model_bytes());

  std::vector<std::pair<std::string, std::function<void()>>> ways;
  ways.emplace_back("reshard, bound", [&] { reshard.run(); });
  ways.emplace_back("reshard, messages", [&] { reshard.run(source.sources(), target.pointers()); });
  const std::vector<std::uint64_t> shards = from.bytes_of(rank);
  std::uint64_t largest = 0;
  for (const std::uint64_t s : shards) largest = std::max(largest, s);
  auto* const unit = static_cast<std::byte*>(
      tutti::allocate(apart ? 4096 : largest * static_cast<std::uint64_t>(comm.size())));
  std::vector<std::byte> plain(apart ? 1 : largest * static_cast<std::uint64_t>(comm.size()));
  Files files(comm, shards);
  if (!apart) {
    ways.emplace_back("all_gather, slice", [&] {
      slice(to, rank, blocks, target, [&](std::size_t u) {
        comm.all_gather(source.pointers()[u], unit, shards[u], DataType::uint8);
        return unit;
      });
    });
    ways.emplace_back("files in /dev/shm", [&] {
      files.save(source);
      comm.barrier();
      if (!needs) return;
      files.begin_load();
      slice(to, rank, blocks, target, [&](std::size_t u) {
        files.load(u, plain.data());
        return plain.data();
      });
      files.end_load();
    });
  }
  reshard.bind(source.sources(), target.pointers());
  std::vector<std::vector<double>> times(ways.size() + 1);
  std::vector<std::byte> a(needs ? to.model_bytes() / static_cast<std::uint64_t>(half) : 0,
                           std::byte{1}),
      b(a);
  for (int i = 0; i < kTurns; ++i) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      fill(from, rank, ++turn, source);
      times[w].push_back(seconds(comm, ways[w].second));
      check(to, rank, turn, target);
    }
    times.back().push_back(seconds(comm, [&] {
      if (needs) std::memcpy(b.data(), a.data(), a.size());
    }));
  }
  tutti::deallocate(unit);
  if (rank != 0) return;
  fmt::print("{} ranks, {} messages, {:.3f} GB; made and proved in {:.0f} ms\n", comm.size(),
             reshard.plan().messages.size(), bytes / 1e9, made * 1e3);
  const std::uint64_t bound = link_bound(from, to, reshard.plan().hosts);
  if (bound > 0)
    fmt::print("the busiest link carries {:.3f} GB at least\n", static_cast<double>(bound) / 1e9);
  ways.emplace_back("memcpy", nullptr);
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const double t = median(times[w]);
    fmt::print("{:<20} {:8.1f} ms  {:6.2f} GB/s  {:5.2f} times as long as the bound reshard\n",
               ways[w].first, t * 1e3, bytes / t / 1e9, t / median(times[0]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool apart = argc == 3 && std::string(argv[2]) == "apart";
  if (argc > 3 || (argc == 3 && !apart)) {
    std::fprintf(stderr, "usage: tutti run -n RANKS reshard_bench [MIB [apart]]\n");
    return 2;
  }
  try {
    Communicator comm = Communicator::from_environment();
    measure(comm, argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024, apart);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "reshard_bench: %s\n", e.what());
    return 1;
  }
}
