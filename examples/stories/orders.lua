-- Counts what was ordered. An order that cannot be read is skipped.
local sold, skipped = {}, 0
for line in io.lines() do
  local read, article, count = pcall(parse, line)
  if read then
    sold[article] = (sold[article] or 0) + count
  else
    skipped = skipped + 1
  end
end
print(sold.glass, skipped .. " skipped")
