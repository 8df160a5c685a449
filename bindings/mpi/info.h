// Hints (MPI_Info): a list of keys with values, both texts, in the order in which the keys were set
// first.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/mpi/handle.h"
#include "bindings/mpi/interface.h"

namespace tutti::mpi {

/// Any thread may call.
class Info {
 public:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  Info() = default;
  explicit Info(Entries entries) : entries_(std::move(entries)) {}

  void set(const std::string& key, std::string value);
  std::optional<std::string> get(const std::string& key) const;
  /// Whether there was one.
  bool erase(const std::string& key);
  Entries entries() const;

 private:
  mutable std::mutex mutex_;
  Entries entries_;
};
using InfoRef = std::shared_ptr<Info>;

/// All of the program's, and MPI_INFO_ENV: environment.cpp tells it what it knows about the start
/// of the program.
Handles<Info, MPI_Info>& infos();
/// Throws Failure(MPI_ERR_INFO) for the null handle and a freed one.
InfoRef shared_info(MPI_Info info);
/// The same, and null for MPI_INFO_NULL: for arguments that may be it.
InfoRef shared_info_or_null(MPI_Info info);

}  // namespace tutti::mpi
