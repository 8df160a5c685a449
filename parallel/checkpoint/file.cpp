#include "parallel/checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace tutti::parallel {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using nlohmann::json;

constexpr const char* kChecksums = "tutti.checksums";
constexpr int kVersion = 1;
constexpr std::size_t kMostHeader = 1u << 30, kChunk = 8u << 20, kAlignment = 64;

constexpr std::array<std::pair<DataType, const char*>, kDataTypes> kTypes{
    {{DataType::int8, "I8"},
     {DataType::uint8, "U8"},
     {DataType::int32, "I32"},
     {DataType::uint32, "U32"},
     {DataType::int64, "I64"},
     {DataType::uint64, "U64"},
     {DataType::float16, "F16"},
     {DataType::float32, "F32"},
     {DataType::float64, "F64"},
     {DataType::bfloat16, "BF16"},
     {DataType::float8_e4m3, "F8_E4M3"},
     {DataType::float8_e5m2, "F8_E5M2"}}};

const char* name_of(DataType type) {
  return std::ranges::find(kTypes, type, &std::pair<DataType, const char*>::first)->second;
}

std::optional<DataType> type_of(const std::string& name) {
  for (const auto& [type, text] : kTypes) {
    if (name == text) return type;
  }
  return std::nullopt;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(ErrorCode::system,
              fmt::format("{} {}: {}", what, path, std::generic_category().message(errno)));
}

/// A file that has its name when it is whole; without commit() it goes.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), early_(path_ + ".partial") {
    fd_ = ::open(early_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(early_, "cannot create");
  }
  ~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(early_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, from, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(early_, "cannot write");
      from += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  void commit() {
    if (::fsync(fd_) != 0) fail(early_, "cannot sync");
    if (::rename(early_.c_str(), path_.c_str()) != 0) fail(path_, "cannot name");
    ::close(std::exchange(fd_, -1));
    // The name is safe when its folder is.
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    const int dir =
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || ::fsync(dir) != 0) {
      if (dir >= 0) ::close(dir);
      fail(folder, "cannot sync");
    }
    ::close(dir);
  }

 private:
  const std::string path_, early_;
  int fd_ = -1;
};

/// The header, padded so that data begin aligned, as safetensors allows.
std::string padded(const json& header) {
  std::string text = header.dump();
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  return text;
}

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

void write(const std::string& path, std::span<const TensorPart> parts, json header,
           bool checksums) {
  std::size_t at = 0;
  for (const TensorPart& p : parts) {
    p.check();
    if (p.name == kChecksums || header.contains(p.name)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: two parts of tensor '{}'", path, p.name));
    }
    const bool is_whole = p.extent.empty() && p.begin == 0 && p.count == elements_of(p.shape);
    header[p.name] = {{"dtype", name_of(p.type)},
                      {"shape", is_whole ? p.shape : std::vector<std::size_t>{p.count}},
                      {"data_offsets", {at, at + p.bytes()}}};
    at += p.bytes();
  }
  if (checksums) {
    header[kChecksums] = {{"dtype", "U64"},
                          {"shape", {parts.size() + 1}},
                          {"data_offsets", {at, at + 8 * (parts.size() + 1)}}};
  }
  const std::string text = padded(header);
  NewFile file(path);
  const std::uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  std::vector<std::uint64_t> sums{XXH3_64bits(text.data(), text.size())};
  for (const TensorPart& p : parts) sums.push_back(write_part(file, p));
  if (checksums) file.write(sums.data(), 8 * sums.size());
  file.commit();
}

/// A tensor by its entry in the header, and by Tutti's own entry for it (or null). `data`: of the
/// file. Throws Error(invalid_argument).
TensorPart part_of(const std::string& name, const json& tensor, const json* piece,
                   std::span<const std::byte> data) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  const std::string type_name = tensor.at("dtype");
  const auto type = type_of(type_name);
  if (!type) refuse(fmt::format("tensor '{}' is of type {}, which is not known", name, type_name));
  const std::size_t from = tensor.at("data_offsets").at(0), to = tensor.at("data_offsets").at(1);
  if (from > to || to > data.size()) {
    refuse(fmt::format("a torn file: tensor '{}' lies behind its end", name));
  }
  TensorPart part{.name = name, .type = *type, .shape = tensor.at("shape")};
  part.count = elements_of(part.shape);
  part.data = const_cast<std::byte*>(data.data() + from);
  if (part.bytes() != to - from) {
    refuse(fmt::format("tensor '{}' of {} {} has {} bytes", name, text_of(part.shape), type_name,
                       to - from));
  }
  if (piece != nullptr) {
    part.shape = piece->at("shape").get<std::vector<std::size_t>>();
    part.offset = piece->at("offset").get<std::vector<std::size_t>>();
    part.extent = piece->at("extent").get<std::vector<std::size_t>>();
    part.begin = piece->at("begin");
  }
  part.check();
  return part;
}

}  // namespace

void write_tensors(const std::string& path, std::span<const TensorPart> all,
                   const FileNotes& notes) {
  std::vector<TensorPart> parts;
  std::ranges::copy_if(all, std::back_inserter(parts),
                       [](const TensorPart& p) { return p.count > 0; });
  json pieces = json::array();  // in the order of the data, which names are not
  for (const TensorPart& p : parts) {
    pieces.push_back({{"name", p.name},
                      {"shape", p.shape},
                      {"offset", p.offset},
                      {"extent", p.extent},
                      {"begin", p.begin}});
  }
  const json of_tutti = {{"version", kVersion}, {"id", notes.id},       {"step", notes.step},
                         {"rank", notes.rank},  {"ranks", notes.ranks}, {"texts", notes.texts},
                         {"pieces", pieces}};
  write(path, parts, {{"__metadata__", {{"tutti", of_tutti.dump()}}}}, true);
}

void write_whole_tensors(const std::string& path, std::span<const TensorPart> tensors,
                         const std::map<std::string, std::string>& texts) {
  json header = json::object();
  if (!texts.empty()) header["__metadata__"] = texts;
  write(path, tensors, header, false);
}

TensorFile::TensorFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    refuse(std::generic_category().message(error));
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size_ < 8) {
    ::close(fd);
    refuse(fmt::format("no file of tensors: it has {} bytes", size_));
  }
  void* const map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (map == MAP_FAILED) refuse(std::generic_category().message(errno));
  bytes_ = static_cast<const std::byte*>(map);
  try {
    read_header();
  } catch (const json::exception& e) {
    ::munmap(map, size_);
    refuse(fmt::format("its header has something else than expected ({})", e.what()));
  } catch (...) {
    ::munmap(map, size_);
    throw;
  }
}

TensorFile::~TensorFile() { ::munmap(const_cast<std::byte*>(bytes_), size_); }

void TensorFile::refuse(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", path_, why));
}

void TensorFile::read_header() {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_, sizeof length);
  if (length > std::min(kMostHeader, size_ - 8)) refuse("no file of tensors, or a torn one");
  const auto* const text = reinterpret_cast<const char*>(bytes_) + 8;
  data_at_ = 8 + length;
  const json header = json::parse(text, text + length, nullptr, false);
  if (!header.is_object()) refuse("no file of tensors: its header is no JSON");
  const auto add = [&](const std::string& name, const json& tensor, const json* piece) {
    try {
      parts_.push_back(part_of(name, tensor, piece, {bytes_ + data_at_, size_ - data_at_}));
    } catch (const Error& e) {
      refuse(e.what());
    }
  };
  json of_tutti;
  if (const auto metadata = header.find("__metadata__"); metadata != header.end()) {
    if (const auto own = metadata->find("tutti"); own != metadata->end()) {
      of_tutti = json::parse(own->get<std::string>());
      if (of_tutti.at("version").get<int>() != kVersion) {
        refuse(fmt::format("written by another version of Tutti (format {}, this one reads {})",
                           of_tutti.at("version").get<int>(), kVersion));
      }
      has_notes_ = true;
    } else {
      notes_.texts = metadata->get<std::map<std::string, std::string>>();
    }
  }
  std::vector<std::pair<std::string, const json*>> tensors;
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__" && name != kChecksums) tensors.emplace_back(name, &tensor);
  }
  std::ranges::sort(tensors, {}, [](const auto& t) {
    return std::pair(t.second->at("data_offsets").at(0).template get<std::size_t>(),
                     t.second->at("data_offsets").at(1).template get<std::size_t>());
  });
  if (has_notes_) {
    notes_ = {.id = of_tutti.at("id"),
              .step = of_tutti.at("step"),
              .rank = of_tutti.at("rank"),
              .ranks = of_tutti.at("ranks"),
              .texts = of_tutti.at("texts")};
    const json& pieces = of_tutti.at("pieces");
    if (pieces.size() != tensors.size()) refuse("its header contradicts itself");
    for (const json& piece : pieces) {
      const std::string name = piece.at("name");
      const auto found = header.find(name);
      if (found == header.end()) refuse(fmt::format("it has no tensor '{}'", name));
      add(name, *found, &piece);
    }
    const auto sums = header.find(kChecksums);
    if (sums == header.end()) refuse("it has no checksums");
    const std::size_t at = sums->at("data_offsets").at(0);
    if (at != size_ - data_at_ - 8 * (parts_.size() + 1)) refuse("a torn file");
    checksums_.resize(parts_.size() + 1);
    std::memcpy(checksums_.data(), bytes_ + data_at_ + at, 8 * checksums_.size());
    if (checksums_.front() != XXH3_64bits(text, length)) {
      refuse("its header is not what was written (checksum)");
    }
    checksums_.erase(checksums_.begin());
  } else {
    // A header with Tutti's checksums, but without its metadata, was changed.
    if (header.contains(kChecksums)) refuse("its header is not what was written");
    for (const auto& [name, tensor] : tensors) add(name, *tensor, nullptr);
  }
  verified_.resize(parts_.size());
}

void TensorFile::verify(std::size_t part) {
  if (checksums_.empty() || verified_[part]) return;
  const TensorPart& p = parts_[part];
  if (XXH3_64bits(p.data, p.bytes()) != checksums_[part]) {
    refuse(fmt::format("tensor '{}' is not what was written (checksum)", p.name));
  }
  verified_[part] = true;
}

}  // namespace tutti::parallel
