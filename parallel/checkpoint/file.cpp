#include "parallel/checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "parallel/checkpoint/header.h"

namespace tutti::parallel {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t kMostHeader = 1u << 30, kChunk = 8u << 20;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

/// The data of a part, in chunks that stay in the cache between the checksum and the copy.
std::uint64_t write_part(NewFile& file, const TensorPart& part) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_64bits_reset(state);
  const auto* const data = static_cast<const std::byte*>(part.data);
  try {
    for (std::size_t at = 0; at < part.bytes(); at += kChunk) {
      const std::size_t n = std::min(kChunk, part.bytes() - at);
      XXH3_64bits_update(state, data + at, n);
      file.write(data + at, n);
    }
  } catch (...) {
    XXH3_freeState(state);
    throw;
  }
  const std::uint64_t checksum = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return checksum;
}

bool write(NewFile& file, std::span<const TensorPart> parts, const std::string& header,
           bool checksums) {
  if (header.size() > kMostHeader) {
    refuse(
        fmt::format("{}: its header, with {} parts and all texts, would have {} bytes, and {} "
                    "are the most",
                    file.path(), parts.size(), header.size(), kMostHeader));
  }
  const std::uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  std::vector<std::uint64_t> sums{XXH3_64bits(header.data(), header.size())};
  for (const TensorPart& p : parts) sums.push_back(write_part(file, p));
  if (checksums) file.write(sums.data(), 8 * sums.size());
  return file.commit();
}

}  // namespace

bool write_tensors(NewFile& file, std::span<const TensorPart> all, const FileNotes& notes) {
  check_writable(all, notes.texts);
  std::vector<TensorPart> parts;
  std::ranges::copy_if(all, std::back_inserter(parts),
                       [](const TensorPart& p) { return p.count > 0; });
  return write(file, parts, header_of(parts, notes), true);
}

void write_whole_tensors(const std::string& path, std::span<const TensorPart> tensors,
                         const std::map<std::string, std::string>& texts) {
  check_writable(tensors, texts);
  NewFile file(path);
  if (!write(file, tensors, whole_header_of(tensors, texts), false)) {
    throw Error(ErrorCode::system, fmt::format("{} was removed while it was written", path));
  }
}

TensorFile::TensorFile(const std::string& path) : path_(path) {
  try {
    map();
    read();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", path_, e.what()));
  }
}

void TensorFile::map() {
  // That this process has no more descriptors or memory says nothing of the file.
  const auto fail = [](int error) {
    if (error == EMFILE || error == ENFILE || error == ENOMEM) {
      throw_system_error("it cannot be opened", error);
    }
    refuse(std::generic_category().message(error));
  };
  const int fd = above_standard(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    fail(error);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size_ < 8) {
    ::close(fd);
    refuse(fmt::format("no file of tensors: it has {} bytes", size_));
  }
  void* const map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (map == MAP_FAILED) fail(error);
  bytes_ = std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(map),
      [size = size_](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); });
}

void TensorFile::read() {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_.get(), sizeof length);
  if (length > std::min(kMostHeader, size_ - 8)) refuse("no file of tensors, or a torn one");
  const std::string_view text(reinterpret_cast<const char*>(bytes_.get()) + 8, length);
  Header header =
      read_header(text, {bytes_.get() + 8 + length, size_ - 8 - static_cast<std::size_t>(length)});
  has_notes_ = header.has_notes;
  notes_ = std::move(header.notes);
  parts_ = std::move(header.parts);
  others_ = std::move(header.others);
  if (has_notes_) {
    checksums_.resize(parts_.size() + 1);
    std::memcpy(checksums_.data(), header.checksums.data(), header.checksums.size());
    if (checksums_.front() != XXH3_64bits(text.data(), text.size())) {
      refuse("its header is not what was written (checksum)");
    }
    checksums_.erase(checksums_.begin());
  }
  verified_.resize(parts_.size());
}

void TensorFile::verify(std::size_t part) {
  if (checksums_.empty() || verified_[part]) return;
  const TensorPart& p = parts_[part];
  if (XXH3_64bits(p.data, p.bytes()) != checksums_[part]) {
    refuse(fmt::format("{}: tensor '{}' is not what was written (checksum)", path_, p.name));
  }
  verified_[part] = true;
}

}  // namespace tutti::parallel
