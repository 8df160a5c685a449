#include "bindings/mpi/window_access.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bindings/mpi/window_far.h"
#include "bindings/mpi/work.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

void check_epoch(const Win& win, int rank) {
  const bool held = win.held[static_cast<std::size_t>(rank)] != Win::Locked::no;
  const bool started = win.started && std::ranges::find(win.goes_to, rank) != win.goes_to.end();
  if (held || started || win.fenced) return;
  fail(MPI_ERR_RMA_SYNC,
       "no epoch lets this rank access the memory of rank {}: MPI_Win_fence, MPI_Win_start or "
       "MPI_Win_lock comes first",
       rank);
}

/// A checked place.
class Target {
 public:
  Target(Win& win, const Place& place)
      : win_(win),
        part_(checked(win, place)),
        type_(committed_type(place.type)),
        count_(place.count) {
    check_count(place.count);
    const MPI_Aint offset = place.displacement * part_.unit;
    if (win.flavor != MPI_WIN_FLAVOR_DYNAMIC && count_ > 0 && type_.size() > 0) {
      const MPI_Aint first = offset + type_.true_lower_bound();
      const MPI_Aint span = (count_ - 1) * type_.extent();
      const MPI_Aint low = first + std::min<MPI_Aint>(span, 0);
      const MPI_Aint high = first + std::max<MPI_Aint>(span, 0) + type_.true_extent();
      if (low < 0 || high > part_.bytes) {
        fail(MPI_ERR_RMA_RANGE, "bytes {} to {} are outside of the memory of rank {}, which has {}",
             low, high, place.rank, part_.bytes);
      }
    }
    own_ = place.rank == win.rank();
    remote_ = part_.address + static_cast<std::uint64_t>(offset);
    if (own_) {
      local_ = reinterpret_cast<std::byte*>(remote_);  // NOLINT: an address of this process
    } else if (part_.mapped != nullptr) {
      local_ = part_.mapped + offset;
    } else if (part_.is_far()) {
      far_.emplace(FarPlace{win, place.rank, offset, type_, count_});
    }
  }

  /// For window_far.h; null: the member is on this host.
  const FarPlace* far() const { return far_ ? &*far_ : nullptr; }
  bool is_mapped() const { return local_ != nullptr || own_; }
  std::byte* base() const { return local_; }
  const Type& type() const { return type_; }
  MPI_Count count() const { return count_; }
  std::size_t bytes() const { return bytes_of(type_, count_); }
  Board& board() const { return *part_.board; }

  void read(std::byte* packed) const {
    if (is_mapped()) return type_.pack(local_, count_, packed);
    if (far_) return far_read(*far_, packed);
    copy(packed, false);
  }
  void write(const std::byte* packed) const {
    if (is_mapped()) return type_.unpack(packed, local_, count_);
    if (far_) return far_write(*far_, packed);
    copy(const_cast<std::byte*>(packed), true);
  }

 private:
  static Win::Part& checked(Win& win, const Place& place) {
    check_peer(*win.comm, place.rank, "target");
    check_epoch(win, place.rank);
    return win.parts[static_cast<std::size_t>(place.rank)];
  }

  void copy(std::byte* packed, bool writes) const {
    std::vector<iovec> there;
    std::size_t bytes = 0;
    const auto go = [&] {
      const iovec here{packed, bytes};
      const ssize_t n = writes
                            ? process_vm_writev(part_.pid, &here, 1, there.data(), there.size(), 0)
                            : process_vm_readv(part_.pid, &here, 1, there.data(), there.size(), 0);
      if (n != static_cast<ssize_t>(bytes)) {
        fail(
            MPI_ERR_RMA_RANGE,
            "the memory of process {} cannot be reached ({}): is it there, and does the system let "
            "processes copy from each other (cross-memory attach)? MPI_Win_allocate does without",
            part_.pid, n < 0 ? std::strerror(errno) : "a part of it alone");
      }
      packed += bytes;
      bytes = 0;
      there.clear();
    };
    constexpr std::size_t kMost = 512;
    constexpr std::size_t kMostBytes = std::size_t{1} << 30;
    type_.layout().for_each_run(
        count_, type_.extent(), 0, static_cast<MPI_Count>(this->bytes()),
        [&](Element, MPI_Aint offset, MPI_Count run) {
          there.push_back(
              {reinterpret_cast<void*>(remote_ + static_cast<std::uint64_t>(offset)),  // NOLINT
               static_cast<std::size_t>(run)});
          bytes += static_cast<std::size_t>(run);
          if (there.size() == kMost || bytes > kMostBytes) go();
        });
    if (!there.empty()) go();
  }

  Win& win_;
  Win::Part& part_;
  const Type& type_;
  const MPI_Count count_;
  bool own_ = false;
  std::uint64_t remote_ = 0;
  std::byte* local_ = nullptr;
  std::optional<FarPlace> far_;
};

/// Held by the one process that combines at a member.
class Combining {
 public:
  explicit Combining(Board& board) : board_(board) {
    for (int looks = 0; looks < 1000; ++looks) {
      if (take()) return;
    }
    world().mail().wait("a one-sided reduction", [&] { return take(); });
  }
  ~Combining() { board_.combining.store(0, std::memory_order_release); }
  Combining(const Combining&) = delete;
  Combining& operator=(const Combining&) = delete;

 private:
  bool take() {
    std::int32_t free = 0;
    return board_.combining.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  Board& board_;
};

void check_equal(std::size_t origin, std::size_t target) {
  if (origin == target) return;
  fail(MPI_ERR_COUNT, "{} bytes at the origin, but {} at the target", origin, target);
}

std::unique_ptr<std::byte[]> packed_copy(const Buffer& buffer) {
  auto memory = raw_memory(buffer.bytes());
  if (buffer.bytes() > 0) buffer.pack(memory.get());
  return memory;
}

/// The target's elements one behind the other, as the operator takes those of the type.
void apply_packed(const Operator& op, const std::byte* from, std::byte* to, const Target& target) {
  if (const Type* const pairs = pairs_of(target.type())) {
    return apply_to_pairs(op, from, to, target.bytes(), *pairs);
  }
  std::size_t at = 0;
  target.type().typed_layout().for_each_run(
      target.count(), target.type().extent(), 0, static_cast<MPI_Count>(target.bytes()),
      [&](Element element, MPI_Aint, MPI_Count bytes) {
        op.apply_elements(from + at, to + at,
                          bytes / static_cast<MPI_Count>(properties(element).size), element);
        at += static_cast<std::size_t>(bytes);
      });
}

}  // namespace

void apply_to_pairs(const Operator& op, const std::byte* from, std::byte* to, std::size_t bytes,
                    const Type& pairs) {
  const MPI_Count n = static_cast<MPI_Count>(bytes) / pairs.size();
  const auto room = static_cast<std::size_t>(pairs.extent() * n);
  const auto a = raw_memory(room);
  const auto b = raw_memory(room);
  pairs.unpack(from, a.get(), n);
  pairs.unpack(to, b.get(), n);
  op.apply(a.get(), b.get(), n, pairs, MPI_DATATYPE_NULL);
  pairs.pack(b.get(), n, to);
}

void put(Win& win, const Buffer& from, const Place& to) {
  const Target target(win, to);
  check_equal(from.bytes(), target.bytes());
  if (from.bytes() == 0) return;
  if (from.is_packed()) return target.write(from.data());
  target.write(packed_copy(from).get());
}

void get(Win& win, const Buffer& to, const Place& from) {
  const Target target(win, from);
  check_equal(to.bytes(), target.bytes());
  if (to.bytes() == 0) return;
  if (to.is_packed()) return target.read(to.data());
  const auto memory = raw_memory(to.bytes());
  target.read(memory.get());
  to.unpack(memory.get(), to.bytes());
}

void combine_at(Win& win, const Buffer& from, const Buffer& result, const Place& to, MPI_Op op) {
  const Target target(win, to);
  const Operator& o = operator_of(op);
  if (!o.predefined()) {
    fail(MPI_ERR_OP, "one-sided calls take predefined operators alone");
  }
  o.check(target.type(), true);
  const bool reads_only = o.kind() == Operator::Kind::no_op;
  if (!reads_only) check_equal(from.bytes(), target.bytes());
  if (result.type) check_equal(result.bytes(), target.bytes());
  if (target.bytes() == 0) return;
  const auto operand = reads_only ? nullptr : packed_copy(from);
  const auto now = raw_memory(target.bytes());
  if (target.far() != nullptr) {
    far_combine(*target.far(), op, operand.get(), result.type ? now.get() : nullptr);
    if (result.type) result.unpack(now.get(), target.bytes());
    return;
  }
  const Combining combining(target.board());
  target.read(now.get());
  if (result.type) result.unpack(now.get(), target.bytes());
  if (reads_only) return;
  apply_packed(o, operand.get(), now.get(), target);
  target.write(now.get());
}

void compare_and_swap(Win& win, const void* from, const void* compare, void* result,
                      const Place& to) {
  const Target target(win, to);
  const std::size_t bytes = target.bytes();
  std::byte now[32];
  if (!target.type().predefined() || bytes > sizeof now) {
    fail(MPI_ERR_TYPE, "MPI_Compare_and_swap takes predefined integers, truth values and bytes");
  }
  if (target.far() != nullptr) {
    return far_swap(*target.far(), static_cast<const std::byte*>(from),
                    static_cast<const std::byte*>(compare), static_cast<std::byte*>(result));
  }
  const Combining combining(target.board());
  target.read(now);
  std::memcpy(result, now, bytes);
  if (std::memcmp(now, compare, bytes) == 0) target.write(static_cast<const std::byte*>(from));
}

}  // namespace tutti::mpi
