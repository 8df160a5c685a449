// The linear algebra of PowerSGD: matrices of float32, stored by rows, with one short side. A
// matrix with the name q is stored transposed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::parallel {

/// y += x
void add(std::size_t count, const float* x, float* y);
/// p (m x r) = a (m x n) times q (n x r, as r x n)
void multiply(const float* a, const float* q, std::size_t m, std::size_t n, std::size_t r,
              float* p);
/// q (n x r, as r x n) = transposed a (m x n) times p (m x r)
void multiply_transposed(const float* a, const float* p, std::size_t m, std::size_t n,
                         std::size_t r, float* q);
/// The columns of p (m x r) become orthonormal; those that depend on the ones before become 0.
void orthogonalise(float* p, std::size_t m, std::size_t r);
/// a (m x n) becomes p times transposed q, and `rest` becomes the difference.
void split(const float* p, const float* q, std::size_t m, std::size_t n, std::size_t r, float* a,
           float* rest);
/// Rows of q (r x n) that are 0 or not finite become numbers between -1 and 1, which `seed`
/// determines.
void replace_zero_rows(float* q, std::size_t r, std::size_t n, std::uint64_t seed);

}  // namespace tutti::parallel
