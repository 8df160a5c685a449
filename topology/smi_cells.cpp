// See smi_cells.h.
#include "topology/smi_cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/number.h"
#include "topology/check.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

// Other devices that are asked about a pair.
constexpr std::size_t kMostWitnesses = 64;
constexpr int kFarthest = 4;

class Agreement {
 public:
  explicit Agreement(SmiMatrix& matrix) : m_(matrix), n_(matrix.columns.size()) {}

  std::vector<Doubt> run() {
    fill_rows();
    m_.near.assign(n_, std::vector<int>(n_, -1));
    std::vector<std::pair<std::size_t, std::size_t>> disputed;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) {
        if (i == j) {
          m_.near[i][j] = 0;
          continue;
        }
        const std::string &there = m_.cells[i][j], &back = m_.cells[j][i];
        const int level = smi_level(there), other = smi_level(back);
        // What the two ends say of their NVLinks is compared where all links are.
        if (smi_links(there) > 0 || smi_links(back) > 0) continue;
        if (level == other) {
          const bool none = there == back && (there == "N/A" || there == "DIS");
          if (level < 0 && !none) says_nothing(i, j);
          m_.near[i][j] = none ? kFarthest : level;
        } else if (level < 0) {
          says_nothing(i, j);
          m_.near[i][j] = m_.near[j][i] = other;
        } else if (other >= 0 && i < j) {
          disputed.emplace_back(i, j);
        }
      }
    }
    for (const auto& [i, j] : disputed) decide(i, j);
    return doubts_.take();
  }

 private:
  std::string name(std::size_t i) const { return printable(m_.columns[i]); }

  void fill_rows() {
    for (std::size_t i = 0; i < n_; ++i) {
      if (!m_.cells[i].empty()) continue;
      doubts_.add(name(i), m_.origins[i], "has no row of its own; its column is taken");
      for (std::size_t j = 0; j < n_; ++j) {
        const bool known = j != i && m_.cells[j].size() > i;
        m_.cells[i].push_back(i == j ? "X" : known ? m_.cells[j][i] : "N/A");
      }
    }
  }

  void says_nothing(std::size_t i, std::size_t j) {
    doubts_.add(fmt::format("{} -> {}", name(i), name(j)), m_.origins[i],
                fmt::format("has '{}', which says nothing of how near they are; what is said back "
                            "is taken",
                            printable(m_.cells[i][j])));
  }

  /// Of three devices, two are equally far from each other and no third pair is farther: the level
  /// that contradicts fewer others, and of equals the nearer one.
  void decide(std::size_t i, std::size_t j) {
    const int there = smi_level(m_.cells[i][j]), back = smi_level(m_.cells[j][i]);
    int against_there = 0, against_back = 0;
    for (std::size_t k = 0, asked = 0; k < n_ && asked < kMostWitnesses; ++k) {
      const int a = m_.near[i][k], b = m_.near[j][k];
      if (k == i || k == j || a < 0 || b < 0) continue;
      ++asked;
      against_there += contradicts(there, a, b) ? 1 : 0;
      against_back += contradicts(back, a, b) ? 1 : 0;
    }
    const int taken = against_there == against_back  ? std::min(there, back)
                      : against_there < against_back ? there
                                                     : back;
    m_.near[i][j] = m_.near[j][i] = taken;
    doubts_.add(fmt::format("{} -> {}", name(i), name(j)), m_.origins[i],
                fmt::format("is {}, back it is {}; {} is taken", m_.cells[i][j], m_.cells[j][i],
                            taken == there ? m_.cells[i][j] : m_.cells[j][i]));
  }

  static bool contradicts(int level, int a, int b) {
    return a == b ? level > a : level != std::max(a, b);
  }

  SmiMatrix& m_;
  std::size_t n_;
  Doubts doubts_;
};

}  // namespace

int smi_level(std::string_view cell) {
  if (cell == "PIX" || cell == "X") return 0;
  if (cell == "PXB") return 1;
  if (cell == "PHB") return 2;
  if (cell == "NODE") return 3;
  if (cell == "SYS" || cell == "SOC") return kFarthest;
  return -1;
}

int smi_links(std::string_view cell) {
  if (!cell.starts_with("NV")) return 0;
  const auto count = parse_number<std::int64_t>(cell.substr(2));
  return count && *count > 0 && *count < 1000 ? static_cast<int>(*count) : 0;
}

std::vector<Doubt> agree(SmiMatrix& matrix) { return Agreement(matrix).run(); }

}  // namespace tutti::topology
