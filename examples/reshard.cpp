// Weights from a trainer's ranks to a server's, as often as there is a new version:
//
//     tutti run -n 6 build/examples/reshard
//
// Ranks 0 to 3 train: each has a quarter of each unit of the model, as FSDP has it, in float32.
// Ranks 4 and 5 serve: each has half of each matrix, as tensor parallelism has it, in bfloat16,
// with query, key and value in one buffer. All of them are ranks of one communicator.
#include <tutti/parallel/reshard/buffers.h>
#include <tutti/parallel/reshard/reshard.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti::parallel::reshard;
using tutti::DataType;

constexpr int kTrainers = 4, kServers = 2, kBlocks = 3, kVersions = 4;
constexpr std::uint64_t kHidden = 256, kWide = 1024;

Tensor tensor(int block, const char* name, DataType type, std::uint64_t rows,
              std::uint64_t columns) {
  return {std::to_string(block) + "." + name, type, {rows, columns}};
}

/// The blocks' matrices: how the server cuts them, and into which buffer they go.
struct Matrix {
  const char* name;
  std::uint64_t rows, columns;
  int cut;
};
constexpr Matrix kMatrices[] = {{"query", kHidden, kHidden, 0}, {"key", kHidden, kHidden, 0},
                                {"value", kHidden, kHidden, 0}, {"out", kHidden, kHidden, 1},
                                {"up", kWide, kHidden, 0},      {"down", kHidden, kWide, 1}};

Layout trainer() {
  Layout layout(kTrainers + kServers);
  const int ranks[kTrainers] = {0, 1, 2, 3};
  for (int b = 0; b < kBlocks; ++b) {
    std::vector<Tensor> unit;
    for (const Matrix& m : kMatrices) {
      unit.push_back(tensor(b, m.name, DataType::float32, m.rows, m.columns));
    }
    add_unit(layout, "block " + std::to_string(b), unit, ranks);
  }
  return layout;
}

Layout server() {
  Layout layout(kTrainers + kServers);
  for (int b = 0; b < kBlocks; ++b) {
    std::uint64_t in_qkv = 0;
    for (const Matrix& m : kMatrices) {
      const Tensor t = tensor(b, m.name, DataType::bfloat16, m.rows, m.columns);
      if (m.columns != m.rows || m.cut != 0) {
        add_sharded(layout, t, {{kServers}, {shard(m.cut)}, {kTrainers, kTrainers + 1}});
        continue;
      }
      // A server's rows of query, key and value lie behind each other.
      const std::uint64_t rows = m.rows / kServers;
      for (int s = 0; s < kServers; ++s) {
        const std::uint64_t first = rows * static_cast<std::uint64_t>(s);
        add_piece(layout, t, kTrainers + s, {{first, first + rows}, {0, m.columns}},
                  std::to_string(b) + ".qkv", in_qkv);
      }
      in_qkv += rows * m.columns * 2;
    }
  }
  return layout;
}

/// A step of training: all weights become the version's number.
void train(const Layout& layout, int rank, const Buffers& weights, float version) {
  const std::vector<std::uint64_t> bytes = layout.bytes_of(rank);
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    auto* const numbers = static_cast<float*>(weights.pointers()[b]);
    for (std::uint64_t i = 0; i < bytes[b] / 4; ++i) numbers[i] = version;
  }
}

int main() {
  try {
    tutti::Communicator comm = tutti::Communicator::from_environment();
    if (comm.size() != kTrainers + kServers) {
      std::fprintf(stderr, "usage: tutti run -n %d reshard\n", kTrainers + kServers);
      return 2;
    }
    const int rank = comm.rank();
    Reshard weights(comm, trainer(), server());
    Buffers source(weights.from(), rank), target(weights.to(), rank);
    weights.bind(source.sources(), target.pointers());
    const std::vector<std::uint64_t> bytes = weights.to().bytes_of(rank);
    for (int version = 1; version <= kVersions; ++version) {
      train(weights.from(), rank, source, static_cast<float>(version));
      weights.run();
      // bfloat16 has the upper half of a float's bits.
      const float expected = static_cast<float>(version);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &expected, sizeof bits);
      for (std::size_t b = 0; b < bytes.size(); ++b) {
        const auto* const numbers = static_cast<const std::uint16_t*>(target.pointers()[b]);
        for (std::uint64_t i = 0; i < bytes[b] / 2; ++i) {
          if (numbers[i] != bits >> 16)
            throw tutti::Error(tutti::ErrorCode::internal, "wrong weights");
        }
      }
    }
    if (rank >= kTrainers) {
      std::uint64_t all = 0;
      for (const std::uint64_t b : bytes) all += b;
      std::printf("rank %d of %d: serves version %d, %llu bytes of weights\n", rank, comm.size(),
                  kVersions, static_cast<unsigned long long>(all));
    }
    return 0;
  } catch (const tutti::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
