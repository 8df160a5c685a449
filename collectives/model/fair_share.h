// Flows that share links: each gets its max-min fair share, earlier classes first. Rates are kept
// up to date where flows come and go, and only there: flows that share no link, not even through
// others, do not touch each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class FairShare {
 public:
  /// Of each link, in bytes.
  explicit FairShare(std::vector<double> capacities);

  /// A flow over these links (each once); `order`: flows of a smaller one go first. `data`: the
  /// part of what it moves that counts. Returns its number.
  int start(double now, double bytes, std::span<const int> links, int order);
  void end(int flow);

  struct Change {
    int flow = 0;
    double ends = 0;
    std::uint32_t version = 0;  // of what is foretold: later ones count
  };
  /// After flows came and went at `now`: the flows that now end at another time.
  const std::vector<Change>& update(double now);
  std::uint32_t version(int flow) const { return flows_[at(flow)].version; }
  double rate(int flow) const { return flows_[at(flow)].rate; }

 private:
  struct Flow {
    double left = 0, rate = 0, since = 0;
    int order = 0;
    std::uint32_t version = 0;
    std::vector<int> links;
    bool seen = false, fixed = false;
  };
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  void touch(int link);
  void share(double now);

  std::vector<double> capacities_;
  std::vector<std::vector<int>> on_;  // flows by link
  std::vector<Flow> flows_;
  std::vector<int> free_;
  std::vector<int> touched_;
  std::vector<char> is_touched_;
  std::vector<Change> changes_;
  // Of the part that is looked at.
  std::vector<int> part_, links_;
  std::vector<double> left_;
  std::vector<int> users_;
};

}  // namespace tutti
