// How much work a search may do. Work is counted in steps of inner loops and not in time: every
// rank of a job searches by itself, and all have to stop at the same point, with the same result,
// however fast their cores are and whatever else runs there.
#pragma once

namespace tutti {

/// What a core of today does in two seconds or less: what one search may take.
constexpr double kSearchSteps = 2e9;

class Budget {
 public:
  explicit Budget(double steps) : left_(steps) {}
  void spend(double steps) { left_ -= steps; }
  bool is_spent() const { return left_ <= 0; }
  double left() const { return left_ > 0 ? left_ : 0; }

 private:
  double left_;
};

}  // namespace tutti
