// Heat that flows along a rod. Each rank has a part of it (docs/windows.md). After each step a rank
// puts its outermost cells into the halos of its neighbours. The neighbours need not be there for
// it. Two halos for each side take turns, so that nobody writes to one that is still being read.
//
//     tutti run -n 4 build/examples/window
#include <tutti/tutti.h>

#include <cstdio>
#include <vector>

int main() try {
  auto comm = tutti::Communicator::from_environment();
  constexpr int kCells = 1000, kSteps = 2000;
  constexpr int kLeft = 0, kRight = 1;  // which halo, and which signal
  struct Halos {
    double of[2][2];  // of each side, in turn
  };
  // Window memory: neighbours on this host write straight into it.
  std::vector<Halos, tutti::Allocator<Halos>> halos(1, Halos{});
  tutti::Window window = comm.window(halos.data(), sizeof(Halos));
  const int left = comm.rank() - 1, right = comm.rank() + 1;
  const auto place = [](int side, int turn) {
    return sizeof(double) * static_cast<std::size_t>(2 * side + turn);
  };

  std::vector<double> now(kCells + 2, 0.0), next(now);
  if (left < 0) now[1] = 1e6;  // all the heat is at one end
  for (int step = 0; step < kSteps; ++step) {
    const int turn = step % 2;
    if (left >= 0) window.put_signal(left, place(kRight, turn), &now[1], sizeof(double), kRight);
    if (right < comm.size()) {
      window.put_signal(right, place(kLeft, turn), &now[kCells], sizeof(double), kLeft);
    }
    // Here it could compute the cells that need no halo.
    if (left >= 0) window.wait_signal(left, 1, kLeft);
    if (right < comm.size()) window.wait_signal(right, 1, kRight);
    now[0] = left >= 0 ? halos[0].of[kLeft][turn] : now[1];
    now[kCells + 1] = right < comm.size() ? halos[0].of[kRight][turn] : now[kCells];
    for (int i = 1; i <= kCells; ++i)
      next[i] = now[i] + 0.4 * (now[i - 1] - 2 * now[i] + now[i + 1]);
    now.swap(next);
  }
  window.close();

  double heat = 0;
  for (int i = 1; i <= kCells; ++i) heat += now[i];
  comm.all_reduce(&heat, &heat, 1, tutti::DataType::float64);
  std::printf("rank %d of %d: all the heat is %.3f, the last cell has %.3g\n", comm.rank(),
              comm.size(), heat, now[kCells]);
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "window: %s\n", error.what());
  return 1;
}
