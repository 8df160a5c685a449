// A collective of MPI as Tutti runs it: one call of Tutti's, with memory for what has to be packed,
// and what is left to do when the call is over.
//
// Data that is only moved goes as bytes, as ranks may give different types for the same data. Data
// of types with holes is packed before and unpacked after the call. Reductions that Tutti lacks
// gather all inputs and combine them in the order of the ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "bindings/mpi/buffer.h"
#include "bindings/mpi/communicator.h"
#include "tutti.h"

namespace tutti::mpi {

/// Memory of a collective.
struct Staging {
  std::unique_ptr<std::byte[]> in, out;
  std::vector<std::size_t> in_counts, in_offsets, out_counts, out_offsets;
};

struct Work {
  Call call;
  /// Lives as long as the call. None: the call uses the program's buffers.
  std::shared_ptr<Staging> staging;
  std::function<void()> finish;  // empty: nothing is left to do

  Staging& stage() {
    if (!staging) staging = std::make_shared<Staging>();
    return *staging;
  }
};

inline std::unique_ptr<std::byte[]> raw_memory(std::size_t bytes) {
  return std::unique_ptr<std::byte[]>(new std::byte[bytes]);
}

/// A list of the program's, of int or of MPI_Count.
class Numbers {
 public:
  Numbers() = default;
  Numbers(const int* list) : narrow_(list) {}      // NOLINT: as the program passes it
  Numbers(const MPI_Count* list) : wide_(list) {}  // NOLINT
  MPI_Count operator[](int i) const {
    return wide_ != nullptr ? wide_[i] : static_cast<MPI_Count>(narrow_[i]);
  }
  explicit operator bool() const { return wide_ != nullptr || narrow_ != nullptr; }
  /// Copies the first n, as the program's list may go.
  void keep(int n) {
    if (!*this) return;
    auto copy = std::make_shared<std::vector<MPI_Count>>();
    for (int i = 0; i < n; ++i) copy->push_back((*this)[i]);
    kept_ = std::move(copy);
    wide_ = kept_->data();
  }

 private:
  std::shared_ptr<const std::vector<MPI_Count>> kept_;
  const int* narrow_ = nullptr;
  const MPI_Count* wide_ = nullptr;
};

/// Whether the program passed MPI_IN_PLACE.
inline bool in_place(const void* buffer) { return buffer == MPI_IN_PLACE; }

/// The data of a buffer as bytes: where they are, or packed in `place`.
const void* input(const Buffer& buffer, std::unique_ptr<std::byte[]>& place);

/// What a rank of Tutti's communicator gets or gives.
struct Piece {
  int rank = 0;
  Buffer buffer;
};
/// Everyone sends its pieces and receives others; those between two ranks match in their order.
/// With packing.
Work exchange(const std::vector<Piece>& out, std::vector<Piece> in, int ranks);

/// The bytes of one element, and of `count`.
std::size_t bytes_of(const Type& type, MPI_Count count);

/// Refuses a null address for data. (A buffer may be null, MPI_BOTTOM, where places are addresses.)
void check_buffer(const void* buffer, MPI_Count count, const Type& type, const char* which);
/// Throws Failure(MPI_ERR_ROOT).
void check_root(const Comm& comm, int root);

}  // namespace tutti::mpi
