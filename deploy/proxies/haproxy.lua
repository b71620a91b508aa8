-- Asks the daemon about a request, and sets variables for the rules of haproxy.cfg. If this fails,
-- none is set, and nothing passes.
-- Of the client's headers only those that limits look at: --entry tenant=X-Tenant.
local looked_at = {"X-Tenant"}

core.register_action("ratelimit", {"http-req"}, function(txn)
  local sent = txn.http:req_get_headers()
  -- all returns the values of a header that the client may have sent more than once.
  local function all(name)
    local values = {}
    for i, value in pairs(sent[name:lower()] or {}) do
      values[i + 1] = value
    end
    return table.concat(values, ", ")
  end
  local headers = {
    ["X-Forwarded-Method"] = {txn.sf:method()},
    ["X-Forwarded-Host"] = {all("Host")},
    ["X-Forwarded-Uri"] = {txn.sf:pathq()},
    ["X-Forwarded-For"] = {txn.sf:src()},
  }
  for _, name in ipairs(looked_at) do
    if sent[name:lower()] then
      headers[name] = {all(name)}
    end
  end
  local daemon = core.backends["limits"].servers["limits"]:get_addr()
  local answer = core.httpclient():get{
    url = "http://limits/v1/check", dst = daemon, headers = headers, timeout = 2000}
  txn:set_var("txn.limit_status", answer.status)
  for variable, name in pairs({
    limit_wait = "retry-after", limit_fields = "ratelimit", limit_policy = "ratelimit-policy",
  }) do
    local values = answer.headers and answer.headers[name]
    if values then
      txn:set_var("txn." .. variable, values[0])
    end
  end
end)
