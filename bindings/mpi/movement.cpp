#include "bindings/mpi/movement.h"

#include <cstring>

namespace tutti::mpi {
namespace {

std::byte* moved(const void* base, MPI_Count bytes) {
  return static_cast<std::byte*>(const_cast<void*>(base)) + bytes;  // some are written to
}

void check(const Block& block, const char* which) {
  if (!in_place(block.buffer)) check_buffer(block.buffer, block.count, *block.type, which);
}

void check_equal(const Comm& comm, std::size_t out, std::size_t in) {
  if (out == in || comm.is_inter()) return;
  fail(MPI_ERR_COUNT,
       "this rank sends {} bytes to itself, but expects {}: counts and types on the two sides have "
       "to come to the same",
       out, in);
}

Work bytes_call(Collective collective, const void* in, void* out, std::size_t count, int root = 0) {
  Work work;
  work.call.collective = collective;
  work.call.in = in;
  work.call.out = out;
  work.call.count = count;
  work.call.type = DataType::uint8;
  work.call.root = root;
  return work;
}

/// The result goes to the buffer: straight, or through staging.
void* output(Work& work, const Buffer& buffer) {
  if (buffer.bytes() == 0) return nullptr;
  if (buffer.is_packed()) return buffer.data();
  Staging& s = work.stage();
  s.out = raw_memory(buffer.bytes());
  work.finish = [staging = work.staging, buffer] {
    buffer.unpack(staging->out.get(), buffer.bytes());
  };
  return s.out.get();
}

/// Of blocks that are contiguous: Tutti's counts and offsets in bytes. False: they have holes.
bool in_bytes(const Blocks& blocks, int ranks, std::vector<std::size_t>& counts,
              std::vector<std::size_t>& offsets) {
  if (!blocks.type->contiguous()) return false;
  for (int r = 0; r < ranks; ++r) {
    // Tutti's offsets count from the buffer on, and are not negative.
    if (blocks.places && blocks.places[r] < 0) return false;
    counts.push_back(bytes_of(*blocks.type, blocks.counts[r]));
    offsets.push_back(static_cast<std::size_t>(blocks.places[r]) *
                      static_cast<std::size_t>(blocks.type->extent()));
  }
  return true;
}

void check(const Blocks& blocks, int n, const char* which) {
  if (!blocks.counts || !blocks.places) {
    fail(MPI_ERR_ARG, "the list of counts or places of the {} buffer is null", which);
  }
  for (int i = 0; i < n; ++i) {
    const Buffer one = buffer_of(blocks, i);
    check_buffer(one.base, one.count, *one.type, which);
  }
}

std::vector<Piece> pieces(const std::vector<int>& places, const auto& blocks) {
  std::vector<Piece> all;
  for (std::size_t i = 0; i < places.size(); ++i) {
    all.push_back({places[i], buffer_of(blocks, static_cast<int>(i))});
  }
  return all;
}

std::vector<Piece> same_for_all(const std::vector<int>& places, const Buffer& buffer) {
  std::vector<Piece> all;
  for (const int place : places) all.push_back({place, buffer});
  return all;
}

std::vector<int> everybody(const Comm& comm) {
  if (comm.is_inter()) return comm.remote_places;
  std::vector<int> all;
  for (int r = 0; r < comm.size(); ++r) all.push_back(r);
  return all;
}

int ranks_of(Comm& comm) { return comm.tutti.size(); }

/// One side of an intercommunicator sends, the other one receives.
Work one_way(Comm& comm, int root, const std::function<std::vector<Piece>()>& of_root,
             const std::function<Piece()>& of_others, bool root_sends) {
  std::vector<Piece> out;
  std::vector<Piece> in;
  if (root == MPI_ROOT) {
    (root_sends ? out : in) = of_root();
  } else if (root != MPI_PROC_NULL) {
    (root_sends ? in : out).push_back(of_others());
  }
  return exchange(out, std::move(in), ranks_of(comm));
}

int place_of(const Comm& comm, int remote) {
  return comm.remote_places[static_cast<std::size_t>(remote)];
}

}  // namespace

Buffer buffer_of(const Block& b) { return {const_cast<void*>(b.buffer), b.count, b.type}; }
Buffer buffer_of(const Block& b, int i) {
  return {moved(b.buffer, i * b.count * b.type->extent()), b.count, b.type};
}
Buffer buffer_of(const Blocks& b, int i) {
  return {moved(b.buffer, b.places[i] * b.type->extent()), b.counts[i], b.type};
}
Buffer buffer_of(const TypedBlocks& b, int i) {
  return {moved(b.buffer, b.places[i]), b.counts[i], b.types[static_cast<std::size_t>(i)]};
}

Work Barrier::operator()(Comm& comm) const {
  (void)comm;
  Work work;
  work.call.collective = Collective::barrier;
  return work;
}

Work Bcast::operator()(Comm& comm) const {
  check_root(comm, root);
  check(data, "only");
  const Buffer buffer = buffer_of(data);
  if (comm.is_inter()) {
    return one_way(
        comm, root, [&] { return same_for_all(comm.remote_places, buffer); },
        [&] {
          return Piece{place_of(comm, root), buffer};
        },
        true);
  }
  if (buffer.is_packed() || buffer.bytes() == 0) {
    void* const bytes = buffer.bytes() == 0 ? nullptr : buffer.data();
    return bytes_call(Collective::broadcast, bytes, bytes, buffer.bytes(), root);
  }
  Work work = bytes_call(Collective::broadcast, nullptr, nullptr, buffer.bytes(), root);
  Staging& s = work.stage();
  s.out = raw_memory(buffer.bytes());
  work.call.in = work.call.out = s.out.get();
  if (comm.rank == root) {
    buffer.pack(s.out.get());
  } else {
    work.finish = [staging = work.staging, buffer] {
      buffer.unpack(staging->out.get(), buffer.bytes());
    };
  }
  return work;
}

Work Gather::operator()(Comm& comm) const {
  check_root(comm, root);
  if (comm.is_inter()) {
    return one_way(
        comm, root, [&] { return pieces(comm.remote_places, out); },
        [&] {
          return Piece{place_of(comm, root), buffer_of(in)};
        },
        false);
  }
  if (comm.rank != root) {
    check(in, "send");
    Work work;
    const Buffer own = buffer_of(in);
    const void* const from = own.is_packed() ? own.data() : input(own, work.stage().in);
    work.call = bytes_call(Collective::gather, from, nullptr, own.bytes(), root).call;
    return work;
  }
  check(out, "receive");
  const Block all{out.buffer, out.count * comm.size(), out.type};
  const std::size_t each = buffer_of(out).bytes();
  Work work = bytes_call(Collective::gather, nullptr, nullptr, each, root);
  work.call.out = output(work, buffer_of(all));
  const Buffer own = in_place(in.buffer) ? buffer_of(out, root) : buffer_of(in);
  if (!in_place(in.buffer)) {
    check(in, "send");
    check_equal(comm, own.bytes(), each);
  }
  work.call.in = own.is_packed() ? own.data() : input(own, work.stage().in);
  return work;
}

Work Gatherv::operator()(Comm& comm) const {
  check_root(comm, root);
  const bool is_root = comm.is_inter() ? root == MPI_ROOT : comm.rank == root;
  std::vector<Piece> from;
  std::vector<Piece> to;
  if (is_root) {
    check(out, comm.peers().size(), "receive");
    to = pieces(everybody(comm), out);
  }
  if (!comm.is_inter() || (!is_root && root != MPI_PROC_NULL)) {
    const bool has_own = !in_place(in.buffer);
    if (has_own) check(in, "send");
    const Buffer own = has_own ? buffer_of(in) : buffer_of(out, root);
    if (is_root && has_own) {
      check_equal(comm, own.bytes(), to[static_cast<std::size_t>(root)].buffer.bytes());
    }
    if (has_own || !is_root) {
      from.push_back({comm.is_inter() ? place_of(comm, root) : root, own});
    } else {
      std::erase_if(to, [&](const Piece& p) { return p.rank == root; });
    }
  }
  return exchange(from, std::move(to), ranks_of(comm));
}

Work Scatter::operator()(Comm& comm) const {
  check_root(comm, root);
  if (comm.is_inter()) {
    return one_way(
        comm, root, [&] { return pieces(comm.remote_places, in); },
        [&] {
          return Piece{place_of(comm, root), buffer_of(out)};
        },
        true);
  }
  if (comm.rank != root) {
    check(out, "receive");
    Work work = bytes_call(Collective::scatter, nullptr, nullptr, buffer_of(out).bytes(), root);
    work.call.out = output(work, buffer_of(out));
    return work;
  }
  check(in, "send");
  const Block all{in.buffer, in.count * comm.size(), in.type};
  Work work = bytes_call(Collective::scatter, nullptr, nullptr, buffer_of(in).bytes(), root);
  const bool keeps = in_place(out.buffer);
  if (!keeps) {
    check(out, "receive");
    check_equal(comm, work.call.count, buffer_of(out).bytes());
    work.call.out = output(work, buffer_of(out));
  }
  const Buffer from = buffer_of(all);
  work.call.in = from.is_packed() ? from.data() : input(from, work.stage().in);
  if (keeps) {  // its block stays where it is, also in packed memory
    work.call.out = static_cast<std::byte*>(const_cast<void*>(work.call.in)) +
                    static_cast<std::size_t>(root) * work.call.count;
  }
  return work;
}

Work Scatterv::operator()(Comm& comm) const {
  check_root(comm, root);
  const bool is_root = comm.is_inter() ? root == MPI_ROOT : comm.rank == root;
  std::vector<Piece> from;
  std::vector<Piece> to;
  if (is_root) {
    check(in, comm.peers().size(), "send");
    from = pieces(everybody(comm), in);
  }
  if (!comm.is_inter() || (!is_root && root != MPI_PROC_NULL)) {
    if (in_place(out.buffer) && is_root) {
      std::erase_if(from, [&](const Piece& p) { return p.rank == root; });
    } else {
      check(out, "receive");
      if (is_root) {
        check_equal(comm, from[static_cast<std::size_t>(root)].buffer.bytes(),
                    buffer_of(out).bytes());
      }
      to.push_back({comm.is_inter() ? place_of(comm, root) : root, buffer_of(out)});
    }
  }
  return exchange(from, std::move(to), ranks_of(comm));
}

Work Allgather::operator()(Comm& comm) const {
  check(out, "receive");
  if (!in_place(in.buffer)) check(in, "send");
  if (comm.is_inter()) {
    return exchange(same_for_all(comm.remote_places, buffer_of(in)),
                    pieces(comm.remote_places, out), ranks_of(comm));
  }
  const std::size_t each = buffer_of(out).bytes();
  const Block all{out.buffer, out.count * comm.size(), out.type};
  Work work = bytes_call(Collective::all_gather, nullptr, nullptr, each);
  work.call.out = output(work, buffer_of(all));
  const Buffer own = in_place(in.buffer) ? buffer_of(out, comm.rank) : buffer_of(in);
  check_equal(comm, own.bytes(), each);
  work.call.in = own.is_packed() ? own.data() : input(own, work.stage().in);
  return work;
}

Work Allgatherv::operator()(Comm& comm) const {
  check(out, comm.peers().size(), "receive");
  if (!in_place(in.buffer)) check(in, "send");
  if (comm.is_inter()) {
    return exchange(same_for_all(comm.remote_places, buffer_of(in)),
                    pieces(comm.remote_places, out), ranks_of(comm));
  }
  const Buffer own = in_place(in.buffer) ? buffer_of(out, comm.rank) : buffer_of(in);
  check_equal(comm, own.bytes(), buffer_of(out, comm.rank).bytes());
  Work work;
  Staging& s = work.stage();
  if (!in_bytes(out, comm.size(), s.out_counts, s.out_offsets)) {
    return exchange(same_for_all(everybody(comm), own), pieces(everybody(comm), out),
                    ranks_of(comm));
  }
  work.call.collective = Collective::all_gather_v;
  work.call.type = DataType::uint8;
  work.call.out = out.type->address(const_cast<void*>(out.buffer));
  work.call.out_counts = s.out_counts;
  work.call.out_offsets = s.out_offsets;
  work.call.in = own.is_packed() ? own.data() : input(own, s.in);
  return work;
}

Work Alltoall::operator()(Comm& comm) const {
  check(out, "receive");
  if (!in_place(in.buffer)) check(in, "send");
  if (comm.is_inter()) {
    return exchange(pieces(comm.remote_places, in), pieces(comm.remote_places, out),
                    ranks_of(comm));
  }
  const std::size_t each = buffer_of(out).bytes();
  const Block to{out.buffer, out.count * comm.size(), out.type};
  Work work = bytes_call(Collective::all_to_all, nullptr, nullptr, each);
  work.call.out = output(work, buffer_of(to));
  if (in_place(in.buffer)) {
    const Buffer all = buffer_of(to);
    if (all.bytes() == 0) return work;
    Staging& s = work.stage();
    s.in = raw_memory(all.bytes());
    all.pack(s.in.get());
    work.call.in = s.in.get();
  } else {
    check_equal(comm, buffer_of(in).bytes(), each);
    const Buffer from = buffer_of(Block{in.buffer, in.count * comm.size(), in.type});
    work.call.in = from.is_packed() ? from.data() : input(from, work.stage().in);
  }
  return work;
}

Work Alltoallv::operator()(Comm& comm) const {
  const std::vector<int> all = everybody(comm);
  const int n = static_cast<int>(all.size());
  check(out, n, "receive");
  if (in_place(in.buffer)) return exchange(pieces(all, out), pieces(all, out), ranks_of(comm));
  check(in, n, "send");
  if (comm.is_inter()) return exchange(pieces(all, in), pieces(all, out), ranks_of(comm));
  Work work;
  Staging& s = work.stage();
  if (!in_bytes(in, n, s.in_counts, s.in_offsets) ||
      !in_bytes(out, n, s.out_counts, s.out_offsets)) {
    return exchange(pieces(all, in), pieces(all, out), ranks_of(comm));
  }
  work.call.collective = Collective::all_to_all_v;
  work.call.type = DataType::uint8;
  work.call.in = in.type->address(in.buffer);
  work.call.out = out.type->address(const_cast<void*>(out.buffer));
  work.call.in_counts = s.in_counts;
  work.call.in_offsets = s.in_offsets;
  work.call.out_counts = s.out_counts;
  work.call.out_offsets = s.out_offsets;
  return work;
}

Work Alltoallw::operator()(Comm& comm) const {
  const std::vector<int> all = everybody(comm);
  const auto check_all = [&](const TypedBlocks& blocks, const char* which) {
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const Buffer one = buffer_of(blocks, i);
      check_buffer(one.base, one.count, *one.type, which);
    }
  };
  check_all(out, "receive");
  if (!in_place(in.buffer)) check_all(in, "send");
  return exchange(in_place(in.buffer) ? pieces(all, out) : pieces(all, in), pieces(all, out),
                  ranks_of(comm));
}

}  // namespace tutti::mpi
