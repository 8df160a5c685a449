#include "bindings/mpi/work.h"

namespace tutti::mpi {

std::size_t bytes_of(const Type& type, MPI_Count count) {
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(type.size());
}

void check_buffer(const void* buffer, MPI_Count count, const Type& type, const char* which) {
  check_count(count);
  if (buffer == nullptr && count > 0 && type.predefined()) {
    fail(MPI_ERR_BUFFER, "the {} buffer is null, but the call has {} elements there", which, count);
  }
}

void check_root(const Comm& comm, int root) {
  if (comm.is_inter()) {
    if (root == MPI_ROOT || root == MPI_PROC_NULL) return;
    if (root >= 0 && root < comm.remote->size()) return;
    fail(MPI_ERR_ROOT,
         "the root is {}, but has to be MPI_ROOT, MPI_PROC_NULL, or a rank of the other group "
         "(0 to {})",
         root, comm.remote->size() - 1);
  }
  if (root >= 0 && root < comm.size()) return;
  fail(MPI_ERR_ROOT, "the root is rank {}, but the communicator's ranks are 0 to {}", root,
       comm.size() - 1);
}

const void* input(const Buffer& buffer, std::unique_ptr<std::byte[]>& place) {
  if (buffer.bytes() == 0) return nullptr;
  if (buffer.is_packed()) return buffer.data();
  place = raw_memory(buffer.bytes());
  buffer.pack(place.get());
  return place.get();
}

namespace {

/// Counts of bytes by rank, and where the pieces of a rank begin; the whole in bytes.
std::size_t lay_out(const std::vector<Piece>& pieces, int ranks, std::vector<std::size_t>& counts,
                    std::vector<std::size_t>& offsets) {
  counts.assign(static_cast<std::size_t>(ranks), 0);
  offsets.assign(static_cast<std::size_t>(ranks), 0);
  for (const Piece& p : pieces) counts[static_cast<std::size_t>(p.rank)] += p.buffer.bytes();
  std::size_t at = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    offsets[r] = at;
    at += counts[r];
  }
  return at;
}

}  // namespace

Work exchange(const std::vector<Piece>& out, std::vector<Piece> in, int ranks) {
  Work work;
  Staging& s = work.stage();
  s.in = raw_memory(lay_out(out, ranks, s.in_counts, s.in_offsets));
  s.out = raw_memory(lay_out(in, ranks, s.out_counts, s.out_offsets));
  std::vector<std::size_t> next = s.in_offsets;
  for (const Piece& p : out) {
    if (p.buffer.bytes() == 0) continue;
    std::size_t& at = next[static_cast<std::size_t>(p.rank)];
    p.buffer.pack(s.in.get() + at);
    at += p.buffer.bytes();
  }
  work.call.collective = Collective::all_to_all_v;
  work.call.in = s.in.get();
  work.call.out = s.out.get();
  work.call.type = DataType::uint8;
  work.call.in_counts = s.in_counts;
  work.call.in_offsets = s.in_offsets;
  work.call.out_counts = s.out_counts;
  work.call.out_offsets = s.out_offsets;
  work.finish = [staging = work.staging, in = std::move(in)] {
    std::vector<std::size_t> at = staging->out_offsets;
    for (const Piece& p : in) {
      if (p.buffer.bytes() == 0) continue;
      std::size_t& place = at[static_cast<std::size_t>(p.rank)];
      p.buffer.unpack(staging->out.get() + place, p.buffer.bytes());
      place += p.buffer.bytes();
    }
  };
  return work;
}

}  // namespace tutti::mpi
