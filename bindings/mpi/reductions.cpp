#include "bindings/mpi/reductions.h"

#include <cstring>
#include <numeric>

namespace tutti::mpi {
namespace {

void check(const Operands& o, MPI_Count count, bool uses_out) {
  if (!in_place(o.in)) check_buffer(o.in, count, *o.type, "send");
  if (uses_out) check_buffer(o.out, count, *o.type, "receive");
  o.op->check(*o.type);
}

/// Where this rank's input is.
const void* own_input(const Operands& o) { return in_place(o.in) ? o.out : o.in; }

Buffer buffer_of(const Operands& o, const void* base, MPI_Count count) {
  return {const_cast<void*>(base), count, o.type};
}

/// Memory for `count` elements with the layout of the type, as a buffer that begins before it or
/// inside of it.
struct Layed {
  Layed(const Type& type, MPI_Count count) {
    const MPI_Aint extent = type.extent() < 0 ? -type.extent() : type.extent();
    const MPI_Aint before = type.true_lower_bound() < 0 ? -type.true_lower_bound() : 0;
    const auto bytes = static_cast<std::size_t>(
        extent * count + type.true_extent() + 2 * before +
        (type.true_lower_bound() > 0 ? type.true_lower_bound() : 0) + extent);
    memory = raw_memory(bytes);
    base = memory.get() + before + (type.extent() < 0 ? extent * count : 0);
  }
  std::unique_ptr<std::byte[]> memory;
  std::byte* base;
};

/// The packed inputs of `ranks` ranks, one behind the other, combined into `to`.
void fold(const Operands& o, MPI_Count count, const std::byte* inputs, int ranks, void* to) {
  if (count == 0 || ranks == 0) return;
  const std::size_t each = bytes_of(*o.type, count);
  const Layed a(*o.type, count);
  const Layed b(*o.type, count);
  std::byte* sum = a.base;
  std::byte* next = b.base;
  o.type->unpack(inputs, sum, count);
  for (int r = 1; r < ranks; ++r) {
    o.type->unpack(inputs + static_cast<std::size_t>(r) * each, next, count);
    o.op->apply(sum, next, count, *o.type, o.handle);
    std::swap(sum, next);
  }
  std::vector<std::byte> packed(each);
  o.type->pack(sum, count, packed.data());
  o.type->unpack(packed.data(), to, count);
}

Work native_call(Collective collective, const Operands& o, const Operator::Native& native,
                 MPI_Count count, int root = 0) {
  Work work;
  work.call.collective = collective;
  work.call.in = own_input(o) == nullptr ? nullptr : o.type->address(own_input(o));
  work.call.out = o.out == nullptr ? nullptr : o.type->address(o.out);
  work.call.count = static_cast<std::size_t>(count) * native.elements;
  work.call.type = native.type;
  work.call.op = native.kind;
  work.call.root = root;
  return work;
}

std::optional<Operator::Native> native_of(const Operands& o) {
  return o.type->contiguous() ? o.op->native(*o.type) : std::nullopt;
}

/// All inputs come to all ranks, or to the root, in staging; `then` combines them.
Work gathered(Collective collective, const Operands& o, Comm& comm, int root,
              std::function<void(const std::byte* inputs)> then) {
  Work work;
  Staging& s = work.stage();
  const Buffer own = buffer_of(o, own_input(o), o.count);
  work.call.collective = collective;
  work.call.type = DataType::uint8;
  work.call.count = own.bytes();
  work.call.root = root;
  work.call.in = input(own, s.in);
  if (collective == Collective::all_gather || comm.rank == root) {
    s.out = raw_memory(own.bytes() * static_cast<std::size_t>(comm.size()));
    work.call.out = s.out.get();
  }
  work.finish = [staging = work.staging, then = std::move(then)] {
    if (staging->out) then(staging->out.get());
  };
  return work;
}

/// Of an intercommunicator: the inputs of the other side, packed in the order of its ranks.
Work from_beyond(const Operands& o, Comm& comm, const std::vector<Piece>& out, MPI_Count count,
                 std::function<void(const std::byte* inputs)> then) {
  const std::size_t each = bytes_of(*o.type, count);
  auto memory = std::make_shared<std::vector<std::byte>>(
      each * static_cast<std::size_t>(comm.remote->size()));
  static const std::shared_ptr<Type> byte = shared_type(MPI_BYTE);
  std::vector<Piece> in;
  for (int r = 0; r < comm.remote->size() && then; ++r) {
    in.push_back({comm.remote_places[static_cast<std::size_t>(r)],
                  {memory->data() + static_cast<std::size_t>(r) * each,
                   static_cast<MPI_Count>(each), Held<Type>(byte)}});
  }
  Work work = exchange(out, std::move(in), comm.tutti.size());
  if (!then) return work;
  work.finish = [first = std::move(work.finish), memory, then = std::move(then)] {
    first();
    then(memory->data());
  };
  return work;
}

std::vector<Piece> to_all(Comm& comm, const Buffer& buffer) {
  std::vector<Piece> out;
  for (const int place : comm.remote_places) out.push_back({place, buffer});
  return out;
}

}  // namespace

Work Allreduce::operator()(Comm& comm) const {
  check(*this, count, true);
  if (comm.is_inter()) {
    return from_beyond(*this, comm, to_all(comm, buffer_of(*this, in, count)), count,
                       [o = *this, n = comm.remote->size()](const std::byte* inputs) {
                         fold(o, o.count, inputs, n, o.out);
                       });
  }
  if (const auto native = native_of(*this)) {
    return native_call(Collective::all_reduce, *this, *native, count);
  }
  return gathered(Collective::all_gather, *this, comm, 0,
                  [o = *this, n = comm.size()](const std::byte* inputs) {
                    fold(o, o.count, inputs, n, o.out);
                  });
}

Work Reduce::operator()(Comm& comm) const {
  check_root(comm, root);
  if (comm.is_inter()) {
    if (root == MPI_ROOT) {
      return from_beyond(*this, comm, {}, count,
                         [o = *this, n = comm.remote->size()](const std::byte* inputs) {
                           fold(o, o.count, inputs, n, o.out);
                         });
    }
    if (root == MPI_PROC_NULL) return from_beyond(*this, comm, {}, 0, {});
    return from_beyond(
        *this, comm,
        {{comm.remote_places[static_cast<std::size_t>(root)], buffer_of(*this, in, count)}}, count,
        {});
  }
  const bool is_root = comm.rank == root;
  if (!is_root && in_place(in)) {
    fail(MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root alone, which is rank {}", root);
  }
  check(*this, count, is_root);
  if (const auto native = native_of(*this)) {
    Work work = native_call(Collective::reduce, *this, *native, count, root);
    if (!is_root) work.call.out = nullptr;
    return work;
  }
  return gathered(Collective::gather, *this, comm, root,
                  [o = Operands(*this), n = comm.size()](const std::byte* inputs) {
                    fold(o, o.count, inputs, n, o.out);
                  });
}

Work Scan::operator()(Comm& comm) const {
  if (comm.is_inter()) fail(MPI_ERR_COMM, "this is no call for an intercommunicator");
  check(*this, count, true);
  const int n = exclusive ? comm.rank : comm.rank + 1;
  return gathered(
      Collective::all_gather, *this, comm, 0,
      [o = Operands(*this), n](const std::byte* inputs) { fold(o, o.count, inputs, n, o.out); });
}

namespace {

/// A block for each rank: all come together at the rank, packed.
Work blocks_to_ranks(const Operands& o, Comm& comm, const std::vector<MPI_Count>& counts) {
  std::vector<Piece> out;
  MPI_Count before = 0;
  const std::vector<int> own_side = comm.is_inter() ? comm.remote_places : std::vector<int>{};
  for (std::size_t r = 0; r < counts.size(); ++r) {
    auto* base =
        static_cast<std::byte*>(const_cast<void*>(own_input(o))) + before * o.type->extent();
    out.push_back(
        {comm.is_inter() ? own_side[r] : static_cast<int>(r), buffer_of(o, base, counts[r])});
    before += counts[r];
  }
  const MPI_Count mine = o.count;
  if (comm.is_inter()) {
    return from_beyond(o, comm, out, mine,
                       [o, mine, n = comm.remote->size()](const std::byte* inputs) {
                         fold(o, mine, inputs, n, o.out);
                       });
  }
  const std::size_t each = bytes_of(*o.type, mine);
  auto memory =
      std::make_shared<std::vector<std::byte>>(each * static_cast<std::size_t>(comm.size()));
  static const std::shared_ptr<Type> byte = shared_type(MPI_BYTE);
  std::vector<Piece> in;
  for (int r = 0; r < comm.size(); ++r) {
    in.push_back({r,
                  {memory->data() + static_cast<std::size_t>(r) * each,
                   static_cast<MPI_Count>(each), Held<Type>(byte)}});
  }
  Work work = exchange(out, std::move(in), comm.size());
  work.finish = [first = std::move(work.finish), memory, o, mine, n = comm.size()] {
    first();
    fold(o, mine, memory->data(), n, o.out);
  };
  return work;
}

/// In place, the input lies where the result goes, and Tutti's result lies elsewhere.
void move_result(Work& work, const Operands& o, std::size_t bytes) {
  if (!in_place(o.in) || bytes == 0) return;
  Staging& s = work.stage();
  s.out = raw_memory(bytes);
  work.call.out = s.out.get();
  work.finish = [staging = work.staging, to = o.type->address(o.out), bytes] {
    std::memcpy(to, staging->out.get(), bytes);
  };
}

}  // namespace

Work ReduceScatterBlock::operator()(Comm& comm) const {
  check(*this, count, true);
  const auto native = native_of(*this);
  if (!native || comm.is_inter()) {
    // Between two sides, each has as much in all: so much that this side's ranks share it.
    std::vector<MPI_Count> counts(static_cast<std::size_t>(comm.peers().size()), count);
    if (comm.is_inter()) {
      const MPI_Count all = count * comm.size();
      for (MPI_Count& c : counts) c = all / comm.remote->size();
    }
    return blocks_to_ranks(*this, comm, counts);
  }
  Work work = native_call(Collective::reduce_scatter, *this, *native, count);
  move_result(work, *this, bytes_of(*type, count));
  return work;
}

Work ReduceScatter::operator()(Comm& comm) const {
  if (!counts) fail(MPI_ERR_ARG, "the list of counts is null");
  std::vector<MPI_Count> each;
  for (int r = 0; r < comm.size(); ++r) each.push_back(counts[r]);
  for (const MPI_Count c : each) check_count(c);
  Operands own = *this;
  own.count = each[static_cast<std::size_t>(comm.rank)];
  check(own, own.count, true);
  const MPI_Count all = std::accumulate(each.begin(), each.end(), MPI_Count{0});
  check(own, all, false);
  const auto native = native_of(own);
  if (comm.is_inter()) {
    // The other side's counts are its own; both sides have as much in all. So everybody gets all of
    // it, and takes its block.
    MPI_Count before = 0;
    for (int r = 0; r < comm.rank; ++r) before += each[static_cast<std::size_t>(r)];
    return from_beyond(own, comm, to_all(comm, buffer_of(own, in, all)), all,
                       [own, all, before, n = comm.remote->size()](const std::byte* inputs) {
                         const std::size_t whole = bytes_of(*own.type, all);
                         const std::size_t part = bytes_of(*own.type, own.count);
                         std::vector<std::byte> mine;
                         for (int r = 0; r < n; ++r) {
                           const std::byte* const from = inputs +
                                                         static_cast<std::size_t>(r) * whole +
                                                         bytes_of(*own.type, before);
                           mine.insert(mine.end(), from, from + part);
                         }
                         fold(own, own.count, mine.data(), n, own.out);
                       });
  }
  if (!native) return blocks_to_ranks(own, comm, each);
  Work work = native_call(Collective::reduce_scatter_v, own, *native, 0);
  Staging& s = work.stage();
  for (const MPI_Count c : each) {
    s.in_counts.push_back(static_cast<std::size_t>(c) * native->elements);
  }
  work.call.in_counts = s.in_counts;
  move_result(work, own, bytes_of(*type, own.count));
  return work;
}

}  // namespace tutti::mpi
