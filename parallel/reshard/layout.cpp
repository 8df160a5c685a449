#include "parallel/reshard/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/reshard/extent.h"

namespace tutti::parallel::reshard {

bool Piece::operator==(const Piece& other) const {
  if (rank != other.rank || buffer != other.buffer || offset != other.offset ||
      !(box == other.box)) {
    return false;
  }
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    if (box[d].size() > 1 && strides[d] != other.strides[d]) return false;
  }
  return true;
}

std::uint64_t Tensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t size : shape) product *= size;
  return product;
}

std::uint64_t span_of(const Piece& piece, DataType type) {
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < piece.box.dimensions(); ++d) {
    if (piece.box[d].size() == 0) return 0;
    last += (piece.box[d].size() - 1) * piece.strides[d];
  }
  return (last + 1) * size_of(type);
}

std::uint32_t Layout::buffer(std::string_view name) {
  // Most callers ask for the buffer that they have just added.
  for (std::size_t i = buffers.size(); i-- > 0;) {
    if (buffers[i] == name) return static_cast<std::uint32_t>(i);
  }
  buffers.emplace_back(name);
  return static_cast<std::uint32_t>(buffers.size() - 1);
}

int Layout::find(std::string_view name) const {
  for (std::size_t i = tensors.size(); i-- > 0;) {
    if (tensors[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

TensorLayout& Layout::tensor(const Tensor& tensor) {
  const int at = find(tensor.name);
  if (at < 0) {
    tensors.push_back({tensor, {}});
    return tensors.back();
  }
  TensorLayout& old = tensors[static_cast<std::size_t>(at)];
  if (old.type != tensor.type || old.shape != tensor.shape) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("layout: tensor '{}' is there already, with another type or shape",
                            tensor.name));
  }
  return old;
}

std::vector<std::uint64_t> Layout::bytes_of(int rank) const {
  std::vector<std::uint64_t> bytes(buffers.size());
  for (const TensorLayout& t : tensors) {
    for (const Piece& p : t.pieces) {
      if (p.rank != rank || p.buffer >= bytes.size()) continue;
      bytes[p.buffer] = std::max(bytes[p.buffer], p.offset + span_of(p, t.type));
    }
  }
  return bytes;
}

std::uint64_t Layout::model_bytes() const {
  std::uint64_t bytes = 0;
  for (const TensorLayout& t : tensors) bytes += t.elements() * size_of(t.type);
  return bytes;
}

std::uint64_t Layout::hash() const {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(ranks));
  for (const std::string& name : buffers) hash = mix(hash, name);
  for (const TensorLayout& t : tensors) {
    hash = mix(mix(hash, t.name), static_cast<std::uint64_t>(t.type));
    hash = mix(hash, t.shape.size());
    for (const std::uint64_t size : t.shape) hash = mix(hash, size);
    hash = mix(hash, t.pieces.size());
    for (const Piece& p : t.pieces) {
      hash = mix(hash, static_cast<std::uint64_t>(p.rank) << 32 | p.buffer);
      hash = mix(hash, p.offset);
      for (std::size_t d = 0; d < p.box.dimensions(); ++d) {
        hash = mix(mix(hash, p.box[d].begin), p.box[d].end);
        hash = mix(hash, p.box[d].size() > 1 ? p.strides[d] : 0);
      }
    }
  }
  return hash;
}

}  // namespace tutti::parallel::reshard
